"""
Where training ends: kinds of convergence
=========================================

This example trains one problem from 200 random starts of two sizes. From small starts, all runs end at the optimal
tokens. From large starts, a fifth of the runs end at a selection that is only locally optimal.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(4, 5, 8, seed=0)
directions = np.random.default_rng(0).normal(size=(200, 8, 8))
names = ["global", "local", "not_local", "undecided"]
_, axis = plt.subplots(figsize=(5.5, 3))
for place, size in zip([-0.2, 0.2], [0.01, 3.0]):
    run = attsvm.train(problem, init=size * directions, steps=3000)
    kinds = attsvm.classify(problem, run).kind
    axis.bar(np.arange(4) + place, [np.mean(kinds == name) for name in names], 0.4, label=f"start of size {size}")
axis.set_xticks(np.arange(4), names)
axis.set(ylabel="share of runs", ylim=(0, 1))
axis.legend()
