"""
The predicted directions differ
===============================

``predict_direction`` returns the Att-SVM that theory predicts for a run, and says whether the prediction is proved,
measured or a conjecture. If a condition fails, as for p = 3 here, the level of evidence is ``none``, and the Att-SVM
serves only for comparison. The figure shows the correlation between the predicted directions for five optimisers on one
problem.
"""

import matplotlib.pyplot as plt

import attsvm
from attsvm.optimizers import mirror_descent, normalized_gradient_descent, steepest_descent

problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
optimizers = {
    "GD": normalized_gradient_descent(),
    "mirror 1.5": mirror_descent(p=1.5),
    "mirror 3": mirror_descent(p=3),
    "sign": steepest_descent(norm="linf"),
    "spectral": steepest_descent(norm="spectral"),
}
runs = [attsvm.train(problem, optimizer=optimizer, steps=300) for optimizer in optimizers.values()]
predictions = [attsvm.predict_direction(problem, run) for run in runs]
for name, prediction in zip(optimizers, predictions):
    print(f"{name:11} {prediction.norm.name:10} {prediction.standing}")

directions = [prediction.solution.direction for prediction in predictions]
_, axis = plt.subplots(figsize=(4.5, 3.6))
picture = axis.imshow([[attsvm.correlation(a, b) for a in directions] for b in directions], vmin=0, vmax=1)
axis.set_xticks(range(5), optimizers, rotation=30)
axis.set_yticks(range(5), optimizers)
axis.grid(False)
plt.colorbar(picture, label="correlation")
