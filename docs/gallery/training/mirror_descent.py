"""
Mirror descent: the choice of p
===============================

ℓp mirror descent converges to the ℓp Att-SVM. For p below 2, a few weights are large; for p above 2, many have a
similar size. Lines show the sorted weights after training, and dots those of the Att-SVM.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=3)
_, axis = plt.subplots(figsize=(5.5, 3.2))
for i, p in enumerate([1.5, 2, 4]):
    optimizer = attsvm.optimizers.mirror_descent(p=p, learning_rate=lambda k: 0.1 + k / 100)
    run = attsvm.train(problem, optimizer=optimizer, steps=5000)
    limit = attsvm.solve_svm(problem, run, norm=p).direction
    for weights, look in [(run.weights, "-"), (limit, ".")]:
        axis.plot(np.sort(abs(weights / abs(weights).max()).ravel())[::-1], look, color=f"C{i}", label=f"p = {p}")
handles, labels = axis.get_legend_handles_labels()
axis.legend(handles[::2], labels[::2])
_ = axis.set(xlabel="weight, from large to small", ylabel="|weight| / largest", xlim=(0, 100), ylim=(0, 1))
