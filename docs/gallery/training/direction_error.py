"""
Training converges to the Att-SVM
=================================

Normalised gradient descent on five random problems, trained side by side, with growing steps. The direction of W
converges to the Frobenius Att-SVM of the tokens that each run selects. The band is the 10-90 % range of the problems.
"""

import attsvm

problems = attsvm.datasets.random_problem(6, 8, 10, seed=1, batch=(5,))
run = attsvm.train(
    problems, optimizer=attsvm.optimizers.normalized_gradient_descent(lambda k: 0.1 + k / 1000), steps=5000
)
solution = attsvm.solve_svm(problems, run)
print(attsvm.direction_error(run, solution))
run.plot(solution, quantities=["direction error"])
