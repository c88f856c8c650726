"""
A soft margin
=============

With 30 sequences in 5 dimensions, no weights select all the optimal tokens. ``slack=C`` allows violations at a price C.
A low price gives small weights, and a high price gives small violations, but some margins remain violated at any price.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(30, 8, 5, seed=0)
selected = attsvm.optimal_tokens(problem)
print(attsvm.solve_svm(problem, selected).status)

prices = np.logspace(-3, 2, 11)
solutions = [attsvm.solve_svm(problem, selected, slack=C) for C in prices]
missing = [(s.objective - s.value**2 / 2) / C for s, C in zip(solutions, prices)]

_, (left, right) = plt.subplots(1, 2, figsize=(7, 2.8))
left.loglog(prices, [s.value for s in solutions], "o-")
left.set(xlabel="price C", ylabel="‖W‖")
right.loglog(prices, missing, "o-")
_ = right.set(xlabel="price C", ylabel="sum of the violations")
