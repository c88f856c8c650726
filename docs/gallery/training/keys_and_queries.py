"""
Training W or its factors
=========================

Gradient descent on W leads to the smallest Frobenius norm. Gradient descent on the factors K and Q of W = KQ' leads to
the smallest nuclear norm, so fewer singular values of the product are large.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
_, axis = plt.subplots(figsize=(5.5, 3.2))
for attention, norm in [("combined", "frobenius"), ("factored", "nuclear")]:
    run = attsvm.train(problem, attention=attention, steps=10_000)
    limit = attsvm.solve_svm(problem, run, norm=norm).direction
    for weights, label, look in [(run.weights, f"{attention}, trained", "o-"), (limit, f"{norm} Att-SVM", "kx")]:
        values = np.linalg.svd(weights, compute_uv=False)
        axis.plot(np.arange(1, 11), values / values[0], look, label=label, markersize=5 + 3 * (look == "kx"))
axis.set(xlabel="singular value", ylabel="size / largest")
axis.legend()
