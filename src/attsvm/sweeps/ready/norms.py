"""The margin ratio of steepest descent in several norms, measured in each of them, for several learning rates."""

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measures.margin_ratio import MarginRatio
from attsvm.sweeps.ready import READY

READY.register(
    "norms",
    Definition(
        name="norms",
        summary="Margin ratio of steepest descent: norm of the steps × learning rate × norm of the margin.",
        grid={"optimizer.norm": ["frobenius", "linf", "spectral"], "learning_rate": [0.01, 0.03, 0.1]},
        fixed={
            "num_sequences": 4,
            "num_tokens": 5,
            "dim": 6,
            "optimizer": "steepest_descent",
            "steps": 4000,
            "record": 20,
        },
        measures=("kind", MarginRatio(("frobenius", "linf", "spectral"))),
        trials=200,
    ),
)
