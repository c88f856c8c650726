"""Benign overfitting of flipped labels: label noise against the strength of the signal."""

from attsvm.sweeps.definition import Definition
from attsvm.sweeps.ready import READY

READY.register(
    "noise",
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
)
