"""
Attention becomes hard
======================

The panels show the attention of six queries after 5, 50 and 2,000 steps. Dots mark the optimal tokens. The norm of W
grows without bound, and each query ends at one token.
"""

import matplotlib.pyplot as plt

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
_, axes = plt.subplots(1, 3, figsize=(7, 2.6))
run = attsvm.train(problem, steps=2000, record=[5, 50, 2000])
for axis, step, weights in zip(axes, run.history["steps"], run.history["weights"]):
    attsvm.plot.attention(problem, weights, ax=axis)
    axis.set_xlabel(f"token, at step {step}")
