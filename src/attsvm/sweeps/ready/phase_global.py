"""The share of global convergence against the number of sequences and the dimension."""

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.ready import READY

READY.register(
    "phase-global",
    Definition(
        name="phase-global",
        summary="Share of global convergence of W over n × d, from random starts.",
        grid={"num_sequences": [2, 4, 6, 8, 10], "dim": [2, 4, 6, 8, 10, 15, 20]},
        fixed={"num_tokens": 5, "init": "uniform", "steps": 2000, "record": 20},
        measures=("kind", "decision_step", "loss"),
        trials=1000,
        budget=32_000,
    ),
)
