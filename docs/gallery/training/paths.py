"""
Paths in the plane
==================

This example trains a prompt with two entries from four starts. The radius is the norm on a logarithmic scale. Each path
turns towards the Att-SVM of the tokens that it selects.
"""

import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(3, 4, 2, seed=1, prompt=True)
starts = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]) * 3
runs = {f"start {start}": attsvm.train(problem, init=start, steps=5000) for start in starts}
selections = {tuple(run.selected.tolist()) for run in runs.values()}
print("selected:", selections, "optimal:", attsvm.optimal_tokens(problem))
directions = {f"Att-SVM {s}": attsvm.solve_svm(problem, s) for s in selections}
attsvm.plot.paths(problem, runs, directions)
