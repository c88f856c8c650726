"""
A trained gain uses few features
================================

Here the logits are x' diag(g) W z, and we train the gain g together with W. Half the sum of their squares is at least
the sum of the row lengths of diag(g) W, and gradient descent converges to the Att-SVM in this norm, where few rows are
non-zero. W alone converges to the Frobenius Att-SVM, which uses all rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(4, 6, 12, seed=5)
_, axes = plt.subplots(1, 2, figsize=(7.0, 2.8), sharey=True, layout="constrained")
for axis, (attention, norm) in zip(axes, [("combined", "frobenius"), ("gain", "l2,1")], strict=True):
    run = attsvm.train(problem, attention=attention, steps=30_000)
    limit = attsvm.solve_svm(problem, run, norm=norm).direction
    for weights, label, look in [(run.weights, "trained", "o"), (limit, f"{norm} Att-SVM", "kx")]:
        lengths = np.linalg.norm(weights, axis=1)
        axis.plot(np.arange(1, 13), lengths / lengths.max(), look, label=label)
    axis.set(title={"combined": "W", "gain": "diag(g) W"}[attention], xlabel="row, one for each feature")
    axis.legend()
axes[0].set_ylabel("length / largest")
