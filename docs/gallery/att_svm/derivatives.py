"""
The derivative of a margin
==========================

``attsvm.svm.differentiable.solve`` solves the Att-SVM as a function that JAX can differentiate. This example shows how
the margin of a prompt changes with each token. Each arrow is the derivative with respect to its token: moving the token
along the arrow increases the margin. Tokens without an arrow do not change the margin, because their constraints are
not active.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

from attsvm.svm.differentiable import solve

tokens = np.array([[[2.5, 1.0], [0.5, 0.8], [1.0, -1.5]], [[2.0, 0.2], [-0.2, 0.9], [0.1, -1.0]]])


def margin(tokens):
    return 1 / solve(tokens, [0, 0]).value


with jax.enable_x64(True):
    gradient = np.asarray(jax.grad(margin)(tokens)).reshape(-1, 2)

_, axis = plt.subplots(figsize=(5, 4))
for i in range(2):
    axis.scatter(*tokens[i].T, color=f"C{i}", label=f"sequence {i + 1}")
    axis.plot(*tokens[i, 0], "o", markersize=14, fillstyle="none", color=f"C{i}")
moved = np.linalg.norm(gradient, axis=1) > 1e-6
print("derivatives:", gradient.round(3).tolist())
axis.quiver(*tokens.reshape(-1, 2)[moved].T, *gradient[moved].T, angles="xy", scale=5, width=0.006, zorder=3)
axis.set(xlabel="entry 0", ylabel="entry 1", xlim=(-1, 3.4), ylim=(-2, 2), title="circled: selected")
axis.legend(loc="lower right")
