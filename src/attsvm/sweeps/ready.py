"""Ready sweeps by name."""

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.measures import MarginRatio

READY: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        Definition(
            name="noise",
            summary="Training and test error over label noise × signal: benign overfitting (arXiv 2409.17625).",
            data="noise",
            grid={"label_noise": [0.0, 0.1, 0.2, 0.3, 0.4], "signal": [2.0, 5.0, 10.0, 20.0, 40.0, 100.0, 400.0]},
            # the published size; the prompt alone is trained, for which compact coordinates change no distribution
            fixed={
                "num_sequences": 20,
                "num_tokens": 8,
                "dim": 2000,
                "num_test": 200,
                "compact": True,
                "optimizer": "gradient_descent",
                "learning_rate": 5e-3,
                "steps": 1000,
                "record": 10,
            },
            measures=("error", "noise_selected", "loss"),  # after these steps trials are undecided: no margin ratio
            trials=40,
        ),
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
        Definition(
            name="phase-feasible",
            summary="Share of separable selections over T × n × d, with certificates: the boundary d ≈ max(T − 1, n).",
            grid={"num_tokens": [3, 5, 9], "num_sequences": [2, 4, 6, 8, 10], "dim": [2, 3, 4, 5, 6, 7, 8, 9, 10, 12]},
            measures=("feasible",),
            trials=2000,
            block=1000,  # no program is compiled for a batch, and large batches are faster
        ),
        Definition(
            name="phase-global",
            summary="Share of global convergence of W over n × d, from random starts.",
            grid={"num_sequences": [2, 4, 6, 8, 10], "dim": [2, 4, 6, 8, 10, 15, 20]},
            fixed={"num_tokens": 5, "init": "uniform", "steps": 8000, "record": 20},
            measures=("kind", "decision_step", "loss"),
            trials=1000,
        ),
    )
}
