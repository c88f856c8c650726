"""Sizes of the experiments: as in the papers, small enough for two cores, and tiny for tests."""

from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from attsvm.papers.experiments.blocks import Blocks
from attsvm.papers.experiments.models import PictureShape, TextShape
from attsvm.papers.experiments.options import Reduction

Shape = TypeVar("Shape", TextShape, PictureShape)


@dataclass(frozen=True)
class Preset(Generic[Shape]):
    """Which model is trained, on how many rows, for how long."""

    shape: Shape
    epochs: int
    batch: int
    # {"sum", "mean"}, of the losses of a batch. The paper sums them on the reviews, so its learning rates there are for
    # sums.
    reduction: Reduction
    learning_rates: dict[str, float]  # default learning rates, by the name of the optimiser
    stop_at: float | None = None  # training ends after an epoch whose training accuracy reaches this value
    train_rows: int | None = None  # train_rows, test_rows: number of rows, drawn with a fixed seed; None takes all
    test_rows: int | None = None
    augment: bool = False  # flip and shift pictures at random
    # test accuracy at the best epoch that the paper reports for these sizes, by the name of the optimiser
    published: dict[str, float] = field(default_factory=dict)
    scale: str = ""  # how the preset differs from the sizes that ``published`` is for; empty if it does not


def _paper_reviews(depth: int, published: tuple[float, float, float], **learning_rates: float) -> Preset[TextShape]:
    """The paper's sizes; ``published`` for ℓ1.1, ℓ2 and ℓ3."""
    blocks = Blocks(width=384, layers=depth, heads=depth, hidden=1536, dropout=0.2)
    rates = {"mirror-1.1": learning_rates["low"], "sgd": learning_rates["two"], "mirror-2": learning_rates["two"]}
    rates |= {"mirror-3": learning_rates["high"], "adam": 1e-4}
    low, two, high = published
    return Preset(
        TextShape(blocks, length=512),
        epochs=100,
        batch=100,
        reduction="sum",
        learning_rates=rates,
        stop_at=0.995,
        published={"mirror-1.1": low, "mirror-2": two, "mirror-3": high},
    )


def _third(preset: Preset[TextShape], learning_rates: dict[str, float]) -> Preset[TextShape]:
    """A third of the width, length, training rows and batch, so that an epoch has as many steps."""
    blocks = preset.shape.blocks
    # the heads divide the width
    width = blocks.width // 3 // blocks.heads * blocks.heads
    return replace(
        preset,
        shape=TextShape(replace(blocks, width=width, hidden=4 * width), length=preset.shape.length // 3),
        batch=preset.batch // 3,
        learning_rates=learning_rates,
        train_rows=8_000,
        test_rows=4_000,
        scale="a third of the width, length, training rows and batch",
    )


_PAPER_3 = _paper_reviews(3, (0.8347, 0.8166, 0.8257), low=8e-4, two=4e-4, high=4e-6)

BEST_ON_REVIEWS = {"mirror-1.1": 3e-3, "mirror-2": 3e-4, "sgd": 3e-4, "mirror-3": 1e-4, "adam": 1e-3}
"""The best of three on validation rows, with the preset ``small`` (docs/notes/real_data.md)."""

BEST_ON_PICTURES = {"mirror-1.1": 2e-2, "adam": 1e-3}
"""The same for pictures."""

REVIEWS: dict[str, Preset[TextShape]] = {
    "paper-3": _PAPER_3,
    "paper-4": _paper_reviews(4, (0.8336, 0.8105, 0.8240), low=6e-4, two=4e-4, high=6e-6),
    "paper-6": _paper_reviews(6, (0.8257, 0.8103, 0.8065), low=1e-3, two=1e-3, high=1e-5),
    "paper-3-third": _third(_PAPER_3, {"mirror-1.1": 8e-4, "mirror-2": 4e-4, "sgd": 4e-4, "mirror-3": 4e-6}),
    "small": Preset(
        TextShape(Blocks(width=48, layers=2, heads=2, hidden=96, dropout=0.1), length=96),
        epochs=5,
        batch=50,
        reduction="sum",
        learning_rates=BEST_ON_REVIEWS,
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
}
"""Presets for movie reviews."""

VIT_RATE = 3e-3
"""Learning rate of the first paper's vision transformer, constant. The paper does not name the optimiser."""

PICTURES: dict[str, Preset[PictureShape]] = {
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
        learning_rates=BEST_ON_PICTURES | {"mirror-2": 5e-2, "sgd": 5e-2, "mirror-3": 1e-2},
        train_rows=10_000,
        test_rows=4_000,
    ),
    "vit-sparsity": Preset(
        PictureShape(Blocks(width=768, layers=12, heads=12, hidden=3072, bias=True), size=224, patch=16),
        epochs=400,
        batch=100,
        reduction="mean",
        learning_rates=dict.fromkeys(("mirror-2", "sgd", "adam"), VIT_RATE),
    ),
    "vit-sparsity-small": Preset(
        PictureShape(Blocks(width=64, layers=4, heads=4, hidden=256, bias=True), size=32, patch=4),
        epochs=20,
        batch=50,
        reduction="mean",
        learning_rates=dict.fromkeys(("mirror-2", "sgd", "adam"), VIT_RATE),
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
}
"""Presets for CIFAR-10."""
