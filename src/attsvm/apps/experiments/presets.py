"""Sizes of the experiments: as in the paper, small enough for two cores, and tiny for tests."""

from dataclasses import dataclass

from attsvm.apps.experiments.models import Blocks, PictureShape, TextShape
from attsvm.errors import ProblemError

TASKS = ("imdb", "cifar10")


@dataclass(frozen=True)
class Preset:
    """What is trained, on how much, for how long.

    Attributes
    ----------
    shape : TextShape or PictureShape
    epochs, batch : int
    reduction : {"sum", "mean"}
        Of the losses of a batch, whose gradient is descended. The paper sums on the reviews, so its step sizes are for
        sums.
    stop_at : float or None
        Training ends after an epoch with this training accuracy.
    train_rows, test_rows : int or None
        So many rows, drawn by the seed of the data; None takes all.
    augment : bool
        Of pictures: flip and shift them at random.
    learning_rates : dict of str to float
        By the name of the optimiser, what it takes unless told; see :data:`OPTIMIZERS`.
    """

    shape: TextShape | PictureShape
    epochs: int
    batch: int
    reduction: str
    learning_rates: dict[str, float]
    stop_at: float | None = None
    train_rows: int | None = None
    test_rows: int | None = None
    augment: bool = False


def _paper_reviews(depth: int, **learning_rates: float) -> Preset:
    blocks = Blocks(width=384, layers=depth, heads=depth, hidden=1536, dropout=0.2)
    rates = {"mirror-1.1": learning_rates["low"], "sgd": learning_rates["two"], "mirror-2": learning_rates["two"]}
    rates |= {"mirror-3": learning_rates["high"], "adam": 1e-4}
    return Preset(
        TextShape(blocks, length=512), epochs=100, batch=100, reduction="sum", learning_rates=rates, stop_at=0.995
    )


PRESETS: dict[str, dict[str, Preset]] = {
    "imdb": {
        "paper-3": _paper_reviews(3, low=8e-4, two=4e-4, high=4e-6),
        "paper-4": _paper_reviews(4, low=6e-4, two=4e-4, high=6e-6),
        "paper-6": _paper_reviews(6, low=1e-3, two=1e-3, high=1e-5),
        "small": Preset(
            TextShape(Blocks(width=48, layers=2, heads=2, hidden=96, dropout=0.1), length=96),
            epochs=5,
            batch=50,
            reduction="sum",
            learning_rates={"mirror-1.1": 1e-3, "mirror-2": 1e-3, "sgd": 1e-3, "mirror-3": 3e-5, "adam": 1e-3},
            stop_at=0.995,
            train_rows=8_000,
            test_rows=4_000,
        ),
        "tiny": Preset(
            TextShape(Blocks(width=16, layers=2, heads=2, hidden=32, dropout=0.1), length=16),
            epochs=2,
            batch=8,
            reduction="sum",
            learning_rates={"mirror-1.1": 1e-2, "mirror-2": 1e-2, "sgd": 1e-2, "mirror-3": 1e-3, "adam": 1e-2},
        ),
    },
    "cifar10": {
        "paper": Preset(
            PictureShape(Blocks(width=512, layers=6, heads=8, hidden=512, dropout=0.1, bias=True), size=48, patch=4),
            epochs=1_000,
            batch=100,
            reduction="mean",
            learning_rates={"mirror-1.1": 5e-2, "adam": 1e-4},
            augment=True,
        ),
        "small": Preset(
            PictureShape(Blocks(width=64, layers=3, heads=4, hidden=128), size=32, patch=4),
            epochs=4,
            batch=50,
            reduction="mean",
            learning_rates={"mirror-1.1": 1e-1, "mirror-2": 5e-2, "sgd": 5e-2, "mirror-3": 1e-2, "adam": 1e-3},
            train_rows=10_000,
            test_rows=4_000,
        ),
        "tiny": Preset(
            PictureShape(Blocks(width=16, layers=2, heads=2, hidden=32, dropout=0.1), size=16, patch=4),
            epochs=2,
            batch=8,
            reduction="mean",
            learning_rates={"mirror-1.1": 5e-2, "mirror-2": 5e-2, "sgd": 5e-2, "mirror-3": 1e-2, "adam": 1e-3},
        ),
    },
}


def preset(task: str, name: str) -> Preset:
    """The preset of a task by its name.

    Raises
    ------
    ProblemError
        If there is none.
    """
    if task not in PRESETS:
        raise ProblemError(f"task: {task!r} found, {' or '.join(TASKS)} wanted")
    found = PRESETS[task].get(name)
    if found is None:
        raise ProblemError(f"preset: {name!r} found, one of {', '.join(PRESETS[task])} wanted for {task}")
    return found
