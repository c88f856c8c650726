"""
Keys and queries with few columns
=================================

Factors K and Q with m columns can represent only weights of rank at most m. More columns than the rank of the nuclear
Att-SVM do not help, and fewer columns give a smaller margin.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(8, 8, 10, seed=0)
selected = attsvm.optimal_tokens(problem)
columns = range(1, 9)
nuclear = attsvm.solve_svm(problem, selected, "nuclear")
print("rank of the nuclear Att-SVM:", np.linalg.matrix_rank(nuclear.direction, tol=1e-5))
margins = [attsvm.solve_svm(problem, selected, "nuclear", rank=m).margin for m in columns]

_, axis = plt.subplots(figsize=(4.5, 3))
axis.plot(columns, margins, "o-")
_ = axis.set(xlabel="columns of K and Q", ylabel="best margin / nuclear norm", ylim=(0, None))
