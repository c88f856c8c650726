"""
Sparsemax, 1.5-entmax and sigmoid attention
===========================================

With softmax, the weights grow without bound, and only their direction converges. With sparsemax and a small penalty,
they converge to the Att-SVM itself, including its norm. With 1.5-entmax, they converge to a minimum near twice the
Att-SVM. With the sigmoid, their direction converges to the SVM that separates the kept tokens from the dropped ones.
The right panel shows the distance to the limit that ``predict_direction`` names.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm
from attsvm.optimizers import Decaying, gradient_descent, normalized_gradient_descent

problem = attsvm.datasets.random_problem(4, 5, 8, seed=1)
decaying = gradient_descent(Decaying(1.0, 2000))
runs = {
    "softmax": attsvm.train(problem, optimizer=normalized_gradient_descent(0.1)),
    "sparsemax": attsvm.train(problem, map="sparsemax", penalty=1e-3, optimizer=decaying, steps=100_000),
    "entmax1.5": attsvm.train(problem, map="entmax1.5", penalty=1e-4, optimizer=gradient_descent(1.0), steps=100_000),
    "sigmoid": attsvm.train(problem, map="sigmoid", optimizer=normalized_gradient_descent(0.1)),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.2))
for (name, run), line in zip(runs.items(), ("-", "--", "-.", ":")):
    prediction = attsvm.predict_direction(problem, run)
    print(f"{name:10} {prediction.standing}: {prediction.source[:70]}")
    steps, weights = run.history["steps"], run.history["weights"]
    lengths = np.linalg.norm(weights, axis=(1, 2))
    left.loglog(steps[1:], lengths[1:] / prediction.solution.value, line, label=name)
    if prediction.point is None:
        away = np.sqrt(2 * attsvm.direction_error(weights, prediction.direction, axis=(-2, -1)))
    else:
        away = np.linalg.norm(weights - prediction.point, axis=(1, 2)) / np.linalg.norm(prediction.point)
    right.loglog(steps[1:], away[1:], line, label=name)
left.set_xlabel("steps")
left.set_ylabel("norm of W / norm of the SVM")
left.legend()
right.set_xlabel("steps")
right.set_ylabel("relative distance to the limit")
figure.tight_layout()
