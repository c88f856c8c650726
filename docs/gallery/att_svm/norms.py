"""
One selection, six norms
========================

Each panel shows the smallest weights that select the same tokens, in a different norm. The optimiser determines which
norm applies. The ℓ1 solution has few non-zero weights, the ℓ∞ solution has many weights of the same size, and the
nuclear solution has low rank.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
selected = attsvm.optimal_tokens(problem)

_, axes = plt.subplots(2, 3, figsize=(7, 4.8))
for axis, norm in zip(axes.flat, ["l1", "frobenius", "linf", "nuclear", "spectral", "l2,1"]):
    W = attsvm.solve_svm(problem, selected, norm=norm).direction
    largest = abs(W).max()
    axis.imshow(W, cmap="RdBu_r", vmin=-largest, vmax=largest)
    rank, used = np.linalg.matrix_rank(W, tol=1e-5), (abs(W) > 1e-5 * largest).sum()
    axis.set(title=f"{norm}: rank {rank}, {used} weights", xticks=[], yticks=[])
    axis.grid(False)
