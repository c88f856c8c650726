"""
How fast does the direction converge?
=====================================

``observed_rates`` fits powers of k and of log k to the direction error, and says which law fits better. With normalised
steps of constant length, the angle to the Att-SVM decreases like 1/k, so the direction error decreases like 1/k².
"""

import attsvm

problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
run = attsvm.train(problem, optimizer=attsvm.optimizers.normalized_gradient_descent(1.0), steps=20_000, record=60)
for quantity, rates in attsvm.theory.observed_rates(problem, run).items():
    print(quantity, rates)
attsvm.plot.compare(problem, {"constant steps": run})
