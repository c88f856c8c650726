"""How a model is trained."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from attsvm._utils.checks import check_integer, check_positive, check_seed
from attsvm._utils.devices import find_torch_device
from attsvm.errors import ProblemError
from attsvm.papers.experiments.optimizers import check_optimizer

Reduction = Literal["sum", "mean"]
Precision = Literal["float32", "bf16"]

NOT_IDENTITY = ("checkpoint_every", "device")
"""Options that may change when a run is resumed."""


@dataclass(frozen=True)
class Options:
    """How a model is trained.

    Raises ProblemError if an option is out of range.
    """

    # "mirror-P" for ℓp mirror descent with p = P, "sgd" or "adam"
    optimizer: str
    learning_rate: float
    epochs: int
    batch: int
    seed: int = 0
    reduction: Reduction = "sum"  # {"sum", "mean"}, of the losses of a batch
    # training ends after an epoch whose training accuracy, measured during training, reaches this value
    stop_at: float | None = None
    checkpoint_every: int = 100  # steps between checkpoints; there is also one after every epoch
    # {"float32", "bf16"}, bf16: products in bfloat16 by autocast, weights and mirror variables in float32
    precision: Precision = "float32"
    compile: bool = False  # compile the model
    device: str = "cpu"  # as for :func:`attsvm.train`; kept under PyTorch's name

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "checkpoint_every"):
            check_integer(name, getattr(self, name), 1)
        check_positive("learning_rate", self.learning_rate)
        check_seed(self.seed)
        for name, values in (("reduction", get_args(Reduction)), ("precision", get_args(Precision))):
            if getattr(self, name) not in values:
                raise ProblemError(f"{name}: expected {' or '.join(map(repr, values))}, got {getattr(self, name)!r}")
        object.__setattr__(self, "device", str(find_torch_device(self.device)))
        check_optimizer(self.optimizer)

    def identity(self) -> dict[str, Any]:
        """The options that must be equal for a run to be resumed."""
        return {name: value for name, value in asdict(self).items() if name not in NOT_IDENTITY}
