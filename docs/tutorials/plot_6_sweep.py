"""
6. A sweep
==========

How does a result depend on the sizes of a problem? A *sweep* draws many random problems in each cell of a grid,
measures something on each of them, and stores the numbers as they are computed. This tutorial runs a small one in
this process, draws it, interrupts it and resumes it.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import attsvm

folder = tempfile.mkdtemp()

# %%
# A grid and a measure
# --------------------
#
# The question: for which sizes can attention keep the optimal tokens of random sequences? Theory says that a matrix W
# almost surely exists if the dimension d is at least T - 1 and at least n, for n sequences of T tokens. This is
# sufficient. Is it necessary?
#
# The grid has the dimension and the number of sequences as its axes. Everything else is fixed. The measure ``feasible``
# solves the Att-SVM of each problem, with a certificate.

grid = {"dim": [2, 3, 4, 5, 6], "num_sequences": [2, 4, 6, 8, 10]}
swept = attsvm.sweep(grid, ["feasible"], fixed={"num_tokens": 4}, trials=50, store=f"{folder}/feasible", workers=0)
print(swept.feasible.dims, dict(swept.sizes))

# %%
# The result is an xarray Dataset with named axes. ``workers=0`` computes in this process; by default one worker
# process is started for each core, and ``scheduler=`` sends the trials to a Dask cluster. The numbers are the same bits
# in all cases, because each trial has a seed of its own.
#
# A value of -1 means that a trial is missing: not computed yet, or not proved. Leave these out before you average.

share = swept.feasible.where(swept.feasible >= 0).mean("trial")
print(share.to_pandas())

# %%
# Fifty trials are a sample. ``attsvm.statistics.share`` gives the interval of each cell.

from attsvm import statistics

found = swept.feasible
estimate = statistics.share((found == 1).sum("trial").values, (found >= 0).sum("trial").values)
print("widest interval of a cell:", round(float((estimate.high - estimate.low).max()), 2))

fig, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
image = axis.pcolormesh(grid["num_sequences"], grid["dim"], share, cmap="cividis", vmin=0, vmax=1)
axis.plot(grid["num_sequences"], np.maximum(3, grid["num_sequences"]), "k--", label="d = max(T - 1, n)")
axis.set(xlabel="number of sequences n", ylabel="dimension d", xticks=grid["num_sequences"], yticks=grid["dim"])
axis.set(ylim=(1.5, 6.5), title="share of feasible problems")
axis.legend(loc="upper right")
fig.colorbar(image)

# %%
# On and above the dashed line all problems are feasible, as the theorem says. Far below it many are feasible, too: the
# condition is sufficient and not necessary.

above = share.where(share.dim >= np.maximum(3, share.num_sequences))
print("smallest share on or above the line:", float(above.min()))
print("largest share below the line:       ", float(share.where(above.isnull()).max()))

# %%
# A measure of your own
# ---------------------
#
# A function of a batch of problems and of their runs is a measure. It returns one number for each trial. The layer is
# trained only if a measure needs it, with the arguments of :func:`attsvm.train` that the grid and ``fixed`` hold.


def growth(problem, run):
    """Norm of the trained weights."""
    return {"growth": np.linalg.norm(run.weights, axis=(-2, -1))}


trained = attsvm.sweep(
    {"learning_rate": [0.05, 0.1, 0.2]},
    ["kind", growth],
    fixed={"num_sequences": 3, "num_tokens": 4, "dim": 5, "optimizer": "normalized_gradient_descent", "steps": 1000},
    trials=40,
    store=f"{folder}/trained",
    workers=0,
)
print("mean norm of W:", trained.growth.mean("trial").values.round(1))

# %%
# ``kind`` is the kind of convergence. It is stored as a code, and the dataset says what the codes mean.

meanings = trained.kind.attrs["flag_meanings"].split()
for rate, row in zip(trained.learning_rate.values, trained.kind.values, strict=True):
    counts = {name: int((row == code).sum()) for code, name in enumerate(meanings)}
    print(f"learning rate {rate}: {counts}")

# %%
# Interrupt and resume
# --------------------
#
# A sweep can be stopped at any moment: by Ctrl-C, by the end of a job, or by a callback that returns True, as here.
# What was computed is in the store. The same call continues, and computes only what is missing.

more = {"trials": 200, "fixed": {"num_tokens": 4}, "workers": 0, "store": f"{folder}/long"}
part = attsvm.sweep({"dim": [2, 4, 6]}, ["feasible"], callback=lambda progress: progress.step >= 200, **more)
print("computed after the interruption:", int((part.feasible >= 0).sum()), "of", part.feasible.size)
whole = attsvm.sweep({"dim": [2, 4, 6]}, ["feasible"], **more)
print("computed after the second call: ", int((whole.feasible >= 0).sum()), "of", whole.feasible.size)
print("unchanged:", bool((part.feasible.where(part.feasible >= 0, whole.feasible) == whole.feasible).all()))

# %%
# :func:`attsvm.open_sweep` opens a store without computing anything, also while a sweep is running elsewhere. From a
# shell:
#
# .. code-block:: sh
#
#    attsvm sweep --list
#    attsvm sweep phase-feasible --out out/feasible    # Ctrl-C, and the same command again to resume
#    attsvm sweep show out/feasible --out out/page
#
# :doc:`/guide/sweeps` describes the definition of a sweep, clusters and the format of the store.
