"""
Several tokens kept together
============================

With a nonlinear prediction head, attention may keep a mixture of tokens. The Att-SVM then separates a set of tokens
from the rest, with equal logits within each set. A finite part describes how the set shares the attention: W = W_fin +
R·W_mm with growing R.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

drawn = attsvm.datasets.random_problem(4, 6, 8, seed=1)
problem = attsvm.Problem(drawn.tokens, queries=drawn.queries)
kept = np.zeros((4, 6), bool)
kept[:, 0] = True
kept[:2, 3] = True  # the first two sequences keep two tokens
shares = np.where(kept, [[0.7, 0, 0, 0.3, 0, 0]] * 2 + [[1, 0, 0, 0, 0, 0]] * 2, 0)

limit = attsvm.solve_svm(problem, kept)
finite = attsvm.finite_part(problem, shares, kept)
print(limit)

_, axes = plt.subplots(1, 3, figsize=(7, 2.4))
for axis, radius in zip(axes, [0, 1, 10]):
    attsvm.plot.attention(problem, finite.weights + radius * limit.direction, ax=axis)
    axis.set_title(f"W_fin + {radius} W_mm")
