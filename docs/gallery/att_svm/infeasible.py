"""
An infeasible selection
=======================

The selected token lies inside the triangle of the others, so no prompt gives it the largest logit. ``solve_svm`` proves
this with multipliers, drawn as areas. Weighted by them, the mean of the other tokens is the selected token.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

tokens = np.array([[[0.9, 0.7], [0.0, 0.0], [2.2, 0.3], [0.6, 2.0]]])
inside = attsvm.solve_svm(attsvm.Problem(tokens), [0])
print(inside)
multipliers = inside.certificate.dual[0]
shares = multipliers / multipliers.sum()
print("weighted mean of the other tokens:", shares @ tokens[0], "selected:", tokens[0, 0])

_, axis = plt.subplots(figsize=(4.5, 3.5))
axis.fill(*tokens[0, 1:4].T, color="C0", alpha=0.1)
axis.scatter(*tokens[0, 1:4].T, s=600 * shares[1:4], color="C0", label="other tokens, area: multiplier")
axis.plot(*tokens[0, 0], "*", markersize=14, color="C3", label="selected")
axis.set(xlabel="entry 0", ylabel="entry 1", ylim=(-0.4, 3))
axis.legend(loc="upper right", labelspacing=1)
