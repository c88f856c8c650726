"""Separable selections: the boundary d ≈ max(T − 1, n), and beyond."""

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.ready import READY

READY.register(
    "phase-feasible",
    Definition(
        name="phase-feasible",
        summary="Share of separable selections over T × n × d, with certificates: the boundary d ≈ max(T − 1, n).",
        grid={"num_tokens": [3, 5, 9], "num_sequences": [2, 4, 6, 8, 10], "dim": [2, 3, 4, 5, 6, 7, 8, 9, 10, 12]},
        measures=("feasible",),
        trials=2000,
        block=1000,  # no program is compiled for a batch, and large batches are faster
    ),
)
