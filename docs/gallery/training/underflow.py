"""
Why steps are normalised
========================

Plain gradient descent slows down as the softmax saturates, because the gradient shrinks exponentially. Normalised steps
do not shrink, and the gradient keeps its relative accuracy.
"""

import attsvm
from attsvm.optimizers import gradient_descent, normalized_gradient_descent

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
runs = {
    "plain, rate 1": attsvm.train(problem, optimizer=gradient_descent(1.0), steps=10_000),
    "normalised, rate 0.1": attsvm.train(problem, optimizer=normalized_gradient_descent(0.1), steps=10_000),
    "normalised, growing": attsvm.train(
        problem, optimizer=normalized_gradient_descent(lambda k: 0.1 + k / 1000), steps=10_000
    ),
}
attsvm.plot.compare(problem, runs)
