"""
Several attention heads select different tokens
===============================================

Two attention heads read the same tokens, and their outputs are added. Each attention head has a selection of its own,
and the smallest margins of both approach each other.
"""

import matplotlib.pyplot as plt

import attsvm

problem = attsvm.datasets.random_problem(5, 6, 12, seed=0, num_heads=2)
run = attsvm.train(problem, steps=10_000)
print("margins of the heads:", attsvm.margin(problem, run))

_, axes = plt.subplots(1, 2, figsize=(6.5, 2.8))
for head, axis in enumerate(axes):
    attsvm.plot.attention(problem[head], run.weights[head], ax=axis)
    axis.set_xlabel(f"token, head {head}")
