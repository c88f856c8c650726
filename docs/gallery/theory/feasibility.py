"""
When can the optimal tokens be selected?
========================================

For random data, a selection is almost surely feasible if d is at least max(T − 1, n), the dashed line. A smaller d is
often enough. Each point is the share of feasible problems among 40 random ones with n = 8 queries and T = 6 tokens.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

dims = np.arange(2, 11)
shares = []
for d in dims:
    problems = attsvm.datasets.random_problem(8, 6, int(d), seed=0, batch=(40,))
    solution = attsvm.solve_svm(problems, attsvm.optimal_tokens(problems))
    shares.append(np.mean(solution.status == "optimal"))

_, axis = plt.subplots(figsize=(5, 3))
axis.plot(dims, shares, "o-")
axis.axvline(8, color="k", linestyle="--", linewidth=1)
_ = axis.set(xlabel="dimension d", ylabel="share of feasible problems")
