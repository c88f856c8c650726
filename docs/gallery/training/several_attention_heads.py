"""
Several attention heads select different tokens
===============================================

Two attention heads read the same tokens, and the layer adds their outputs. Each attention head makes its own selection,
and their smallest margins approach each other.
"""

import matplotlib.pyplot as plt

import attsvm

problem = attsvm.datasets.random_problem(5, 6, 12, seed=0, num_heads=2)
run = attsvm.train(problem, steps=10_000)
print("margins of the attention heads:", attsvm.margin(problem, run))

_, axes = plt.subplots(1, 2, figsize=(6.5, 2.8))
for head, axis in enumerate(axes):
    attsvm.plot.attention(problem[head], run.weights[head], ax=axis)
    axis.set_xlabel(f"token, head {head}")
