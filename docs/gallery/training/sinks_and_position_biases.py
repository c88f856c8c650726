"""
A sink and position biases
==========================

In practice, attention layers add trained numbers to the logits: a bias for each position, and the logit of a sink, a
token with value 0. These numbers form a second block beside W, under the same norm. Both blocks together converge in
direction to one Att-SVM.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm
from attsvm.optimizers import Growing, normalized_gradient_descent

plain = attsvm.datasets.random_problem(6, 8, 10, seed=0)
problem = plain.with_position_bias("absolute").with_sink(trained=True)
run = attsvm.train(problem, optimizer=normalized_gradient_descent(Growing(0.1, 4000)), steps=40_000)
solution = attsvm.solve_svm(problem, run)
print(run)
print(f"direction error {attsvm.direction_error(run, solution):.1e}")

# %%
# The plot compares the trained biases with those of the Att-SVM, with W and b together scaled to unit length. The last
# entry is the logit of the sink.
_, axis = plt.subplots(figsize=(5.5, 3))
for found, label, look in [(run.weights, "trained", "o"), (solution.direction, "Att-SVM", "kx")]:
    b = problem.blocks(found / np.linalg.norm(found))[1]
    axis.plot(np.arange(9), b, look, label=label, markersize=5 + 3 * (look == "kx"))
axis.set_xticks(np.arange(9), [*map(str, range(8)), "sink"])
axis.set(xlabel="position", ylabel="bias")
axis.legend()

# %%
# If we train keys and queries, the biases become negligible: KQ' grows like the square of its factors, and b does not.
run = attsvm.train(problem, attention="factored", steps=5_000)
W, b = problem.blocks(run.history["weights"])
part = np.linalg.norm(b, axis=-1) / np.linalg.norm(W, axis=(-2, -1))
for record in (0, 10, 20, 30, -1):
    print(f"after {run.history['steps'][record]:>5,} steps: |b|/|KQ'| = {part[record]:.0e}")
