"""
Support tokens
==============

The margin of a token, (x_α − x_t)'W z, is the amount by which the logit of the selected token exceeds its own. At the
Att-SVM, the support tokens have margin 1, and only they have non-zero multipliers. Removing any other unselected token
does not change W.
"""

import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
selected = attsvm.optimal_tokens(problem)
solution = attsvm.solve_svm(problem, selected)
attsvm.plot.margins(problem, solution)

# %%
# The same problem without the tokens that are neither selected nor support tokens has the same solution.
kept = solution.support | (np.arange(8) == selected[:, None])
smaller = attsvm.Problem(problem.tokens, queries=problem.queries, mask=kept)
direction = attsvm.solve_svm(smaller, selected).direction
print(f"{kept.sum()} of {kept.size} tokens kept, largest change {abs(direction - solution.direction).max():.1e}")
