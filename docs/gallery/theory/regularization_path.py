"""
Regularisation paths
====================

A regularisation path consists of the minimisers of the loss over balls of growing radius R. Their direction converges
to the Att-SVM in the norm of the ball, with an error like 1/R².
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
_, axis = plt.subplots(figsize=(5, 3.2))
for norm, look in [("frobenius", "o-"), (1.5, "s--")]:
    value = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=norm).value
    path = attsvm.regularization_path(problem, value * np.logspace(0.5, 3, 6), norm=norm)
    axis.loglog(path.radii / value, path.direction_errors, look, label=str(norm))
axis.loglog(path.radii / value, 0.1 * (path.radii / value) ** -2.0, "k:", label="1/R²")
axis.set(xlabel="radius / value of the Att-SVM", ylabel="direction error")
axis.legend()
