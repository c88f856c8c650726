"""
A sweep over sizes
==================

``attsvm.sweep`` draws many problems for each cell of a grid and stores what it measures. This example measures the
share of problems whose optimal tokens can be selected.
"""

import tempfile

import attsvm

grid = {"num_sequences": [2, 4, 6, 8, 10], "dim": [2, 3, 4, 5, 6]}
with tempfile.TemporaryDirectory() as folder:
    found = attsvm.sweep(
        grid, ["feasible"], fixed={"num_tokens": 4}, trials=50, store=f"{folder}/phase", workers=0
    ).load()
share = found.feasible.where(found.feasible >= 0).mean("trial")
axis = share.plot(x="dim", y="num_sequences", cmap="Blues", cbar_kwargs={"label": "share"}).axes
_ = axis.set(xlabel="dimension d", ylabel="sequences n")
