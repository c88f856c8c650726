"""
Three optimisers, three limits
==============================

Gradient, sign and spectral descent separate the same tokens in different directions: we expect each to converge to the
Att-SVM in its own norm. ``compare`` plots the direction error of each run relative to its prediction. The error of
spectral descent decreases slowest here.
"""

import attsvm
from attsvm.optimizers import normalized_gradient_descent, steepest_descent

problem = attsvm.datasets.random_problem(4, 5, 6, seed=2)
runs = {
    "gradient": attsvm.train(problem, optimizer=normalized_gradient_descent(0.1), steps=10_000),
    "sign": attsvm.train(problem, optimizer=steepest_descent(learning_rate=0.02, norm="linf"), steps=10_000),
    "spectral": attsvm.train(problem, optimizer=steepest_descent(learning_rate=0.02, norm="spectral"), steps=10_000),
}
attsvm.plot.compare(problem, runs)

# %%
# If the optimum is not unique, as often happens for sign and spectral descent, the margin ratio is more informative
# than the direction.
for name, run in runs.items():
    norm = attsvm.predict_direction(problem, run).norm
    print(f"{name:10} {norm.name:10} {attsvm.margin_ratio(problem, run, norm=norm):.3f}")
