"""
An Att-SVM is a separating direction
====================================

A prompt p selects token α of a sequence if (x_α − x_t)'p > 0 for every other token t. So all differences x_α − x_t must
lie on one side of a line through the origin. The Att-SVM is the shortest p that gives all of them a margin of at least
1. The differences on the dashed line belong to the support tokens.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

tokens = np.array([[[2.5, 1.0], [0.5, 0.8], [1.0, -1.5]], [[2.0, 0.2], [-0.2, 0.9], [0.1, -1.0]]])
selected = [0, 0]
solution = attsvm.solve_svm(attsvm.Problem(tokens), selected)
p = solution.direction
differences = tokens[:, :1] - tokens

_, axis = plt.subplots(figsize=(5.5, 4))
for i, marker in enumerate("os"):
    axis.plot(*differences[i, 1:].T, marker, color="C0", label=f"differences of sequence {i + 1}")
axis.plot(*differences[solution.support].T, "o", markersize=14, fillstyle="none", color="C1", label="support tokens")
axis.annotate("", p / (p @ p), (0, 0), arrowprops={"arrowstyle": "->"})
axis.text(*(0.45 * p / (p @ p) + [0.02, 0.08]), "p")
across = np.array([-p[1], p[0]]) / (p @ p)
axis.plot(*(p / (p @ p) + np.outer([-4, 4], across)).T, "k--", linewidth=1, label="margin 1")
axis.set(xlim=(-0.3, 3.2), ylim=(-1.4, 3), aspect="equal", title=f"distance of the line: {solution.margin:.3f} = 1/‖p‖")
axis.plot(0, 0, "k+")
axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
