"""The optimizers that the experiments compare, in one table."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.torch.optimizers.mirror_descent import MirrorDescent


class Kind(ABC):
    """A kind of optimizer, with the names that it is called by."""

    @property
    @abstractmethod
    def spelling(self) -> str:
        """How a user writes it, for help and error messages."""

    @abstractmethod
    def reads(self, name: str) -> bool:
        """Whether a name is one of this kind."""

    @abstractmethod
    def make(self, name: str, parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
        """The optimizer of that name. The training loop itself checks that gradients are finite."""


class Mirror(Kind):
    """ℓp mirror descent, with p in the name."""

    spelling = "mirror-P with P > 1"

    def reads(self, name: str) -> bool:
        """Whether the name is mirror-P with 1 < P < ∞."""
        head, _, power = name.partition("-")
        with suppress(ValueError):
            return head == "mirror" and 1 < float(power) < inf
        return False

    def make(self, name: str, parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
        """ℓp mirror descent with the p of the name."""
        p = float(name.removeprefix("mirror-"))
        return MirrorDescent(parameters, lr=learning_rate, p=p, nonfinite="unchecked")


@dataclass(frozen=True)
class Builtin(Kind):
    """An optimizer of ``torch.optim`` with its default options."""

    name: str
    optimizer: type[torch.optim.SGD] | type[torch.optim.Adam]

    @property
    def spelling(self) -> str:
        return self.name

    def reads(self, name: str) -> bool:
        """Whether the name is its own."""
        return name == self.name

    def make(self, name: str, parameters: Iterable[Tensor], learning_rate: float) -> torch.optim.Optimizer:
        """The optimizer of PyTorch."""
        return self.optimizer(parameters, lr=learning_rate)


OPTIMIZERS: tuple[Kind, ...] = (Mirror(), Builtin("sgd", torch.optim.SGD), Builtin("adam", torch.optim.Adam))
"""Every kind of optimizer. A new one is a new entry."""


def find_optimizer(name: str) -> Kind:
    """The kind of optimizer that a name belongs to.

    Raises ProblemError if there is none.
    """
    for kind in OPTIMIZERS:
        if kind.reads(name):
            return kind
    raise ProblemError(f"optimizer: expected one of {', '.join(kind.spelling for kind in OPTIMIZERS)}, got {name!r}")
