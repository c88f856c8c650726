"""
Rotary attention uses few frequencies
=====================================

Rotary position embeddings (RoPE) rotate pairs of columns of K and Q by angles proportional to the position, with one
frequency per pair. In the product, each frequency contributes a complex matrix of rank one. The sum of the complex
nuclear norms defines an Att-SVM, and gradient descent on K and Q converges to it if its ranks are at most one. A few
frequencies account for most of the norm.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm
from attsvm.norms import Rotary

frequencies = np.array([3.0, 1.0, 0.3, 0.1])
problem = attsvm.datasets.random_problem(3, 4, 5, seed=0).with_rotations(frequencies)
run = attsvm.train(problem, attention="rotary", steps=30_000)
prediction = attsvm.predict_direction(problem, run)
print(prediction.norm.name, prediction.standing, attsvm.margin_ratio(problem, run, norm=prediction.norm))

_, axis = plt.subplots(figsize=(5.0, 2.8), layout="constrained")
for weights, label, look in [(run.weights, "K and Q, trained", "o"), (prediction.direction, "Att-SVM", "kx")]:
    sizes = np.linalg.svd(Rotary(4).blocks(weights), compute_uv=False).sum(axis=-1)
    axis.plot([f"{frequency:g}" for frequency in frequencies], sizes / sizes.sum(), look, label=label)
axis.set(xlabel="frequency", ylabel="share of the norm", ylim=(0, None))
axis.legend(loc="center left")
