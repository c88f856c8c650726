"""
6. A sweep
==========

How does a result depend on the sizes of a problem? A *sweep* draws many random problems for each cell of a grid,
measures something on each problem, and stores the results as it goes. This tutorial runs a small sweep in the current
process, plots it, interrupts it and resumes it.
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
# For which sizes can attention keep the optimal tokens of random sequences? For n sequences of T tokens, theory says
# that a suitable matrix W almost surely exists if the dimension d is at least T - 1 and at least n. This condition is
# sufficient. Is it also necessary?
#
# The axes of the grid are the dimension and the number of sequences. Everything else is fixed. The measure ``feasible``
# solves the Att-SVM of each problem, with a certificate.

grid = {"dim": [2, 3, 4, 5, 6], "num_sequences": [2, 4, 6, 8, 10]}
swept = attsvm.sweep(grid, ["feasible"], fixed={"num_tokens": 4}, trials=50, store=f"{folder}/feasible", workers=0)
print(swept.feasible.dims, dict(swept.sizes))

# %%
# The result is an xarray Dataset with named axes. ``workers=0`` computes in the current process. The default starts one
# worker process per core, and ``scheduler=`` sends the trials to a Dask cluster. The numbers are identical bit for bit
# in all cases, because each trial has its own seed.
#
# A value of -1 means that a trial is missing: either not computed yet, or not proved. Exclude these values before you
# average.

share = swept.feasible.where(swept.feasible >= 0).mean("trial")
print(share.to_pandas())

# %%
# Fifty trials are only a sample. ``attsvm.statistics.share`` gives a confidence interval for each cell.

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
# On and above the dashed line, all problems are feasible, as the theorem says. Many problems below the line are
# feasible too, so the condition is sufficient but not necessary.

above = share.where(share.dim >= np.maximum(3, share.num_sequences))
print("smallest share on or above the line:", float(above.min()))
print("largest share below the line:       ", float(share.where(above.isnull()).max()))

# %%
# A custom measure
# ----------------
#
# A measure is a function of a batch of problems and their runs. It returns one number for each trial. The sweep trains
# the layer only if a measure needs it, and passes the arguments in the grid and in ``fixed`` to :func:`attsvm.train`.


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
# ``kind`` is the kind of convergence, stored as a code. The dataset lists the meanings of the codes.

meanings = trained.kind.attrs["flag_meanings"].split()
for rate, row in zip(trained.learning_rate.values, trained.kind.values, strict=True):
    counts = {name: int((row == code).sum()) for code, name in enumerate(meanings)}
    print(f"learning rate {rate}: {counts}")

# %%
# Interrupt and resume
# --------------------
#
# You can stop a sweep at any moment: with Ctrl-C, by ending its job, or with a callback that returns True, as here. The
# store keeps all finished trials. The same call then computes only the missing ones.

more = {"trials": 200, "fixed": {"num_tokens": 4}, "workers": 0, "store": f"{folder}/long"}
part = attsvm.sweep({"dim": [2, 4, 6]}, ["feasible"], callback=lambda progress: progress.step >= 200, **more)
print("computed after the interruption:", int((part.feasible >= 0).sum()), "of", part.feasible.size)
whole = attsvm.sweep({"dim": [2, 4, 6]}, ["feasible"], **more)
print("computed after the second call: ", int((whole.feasible >= 0).sum()), "of", whole.feasible.size)
print("unchanged:", bool((part.feasible.where(part.feasible >= 0, whole.feasible) == whole.feasible).all()))

# %%
# :func:`attsvm.open_sweep` opens a store without computing anything, even while a sweep is running elsewhere. From a
# shell:
#
# .. code-block:: sh
#
#    attsvm sweep --list
#    attsvm sweep phase-feasible --out out/feasible    # Ctrl-C, and the same command again to resume
#    attsvm sweep show out/feasible --out out/page
#
# :doc:`/guide/sweeps` describes how to define a sweep, how to use a cluster, and the format of the store.
