"""
Training the prediction head together with the attention
========================================================

``train_head=True`` trains the prompt and the linear prediction head at the same time. The prediction head converges to
the max-margin head on the selected tokens.
"""

import matplotlib.pyplot as plt
import numpy as np

import attsvm

problem = attsvm.datasets.random_problem(6, 8, 10, seed=1, prompt=True)
run = attsvm.train(problem, train_head=True, steps=20_000)
limit = attsvm.solve_head(problem, run)
head = run.parameters["v"]
print("direction error of the prediction head:", attsvm.direction_error(head, limit.direction))

_, axis = plt.subplots(figsize=(5, 3))
places = np.arange(10)
axis.bar(places - 0.2, head / np.linalg.norm(head), 0.4, label="trained head")
axis.bar(places + 0.2, limit.direction / limit.value, 0.4, label="max-margin head")
axis.set(xlabel="entry", ylabel="entry / norm")
axis.set(ylim=(None, 0.5))
_ = axis.legend(loc="upper right", ncols=2)
