"""
Training converges to the Att-SVM
=================================

Normalised gradient descent with growing steps trains five random problems side by side. In each run, the direction of W
converges to the Frobenius Att-SVM of the selected tokens. The band is the 10-90 % range over the problems.
"""

import attsvm

problems = attsvm.datasets.random_problem(6, 8, 10, seed=1, batch=(5,))
run = attsvm.train(
    problems, optimizer=attsvm.optimizers.normalized_gradient_descent(lambda k: 0.1 + k / 1000), steps=5000
)
solution = attsvm.solve_svm(problems, run)
print(attsvm.direction_error(run, solution))
run.plot(solution, quantities=["direction error"])
