"""The base class of the tasks of experiments: data, and measures besides weights and attention."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic

import numpy as np
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.papers.experiments.presets import Preset, Shape
from attsvm.papers.experiments.tables import Rows


@dataclass(frozen=True)
class Data:
    """What a model is trained and tested on."""

    train: Rows
    test: Rows
    source: str
    tokenizer: Any = None  # of texts

    @cached_property
    def sha256(self) -> str:
        """Hash of all rows."""
        found = hashlib.sha256()
        for rows in (self.train, self.test):
            found.update(rows.inputs.numpy().tobytes())
            found.update(rows.labels.numpy().tobytes())
        return found.hexdigest()


class Task(ABC, Generic[Shape]):
    """A task: its data, its presets, and its own measurements."""

    name: str
    """How a user calls it."""

    hub_name: str
    """Name of its data on the Hugging Face hub."""

    presets: dict[str, Preset[Shape]]

    augment: Callable[[Tensor], Tensor] | None = None
    """Changes a batch of inputs at random, for presets with ``augment``."""

    def preset(self, name: str) -> Preset[Shape]:
        """The preset of this name.

        Raises ProblemError if there is none.
        """
        if name not in self.presets:
            raise ProblemError(f"preset: expected one of {', '.join(self.presets)} for {self.name}, got {name!r}")
        return self.presets[name]

    @abstractmethod
    def load(
        self, preset: Preset[Shape], source: str, *, vocabulary: str | None = None, validation_rows: int = 0
    ) -> Data:
        """The rows of a preset.

        ``source``: as for :func:`attsvm.papers.experiments.tables.read_splits`. ``vocabulary``: as for
        :func:`attsvm.papers.experiments.reviews.load_tokenizer`. ``validation_rows``: if positive, that many training
        rows are not trained on and replace the test rows.

        Raises ProblemError if data or vocabulary cannot be read, or do not fit the preset.
        """

    def measured(self, model: Any, preset: Preset[Shape], data: Data, device: str) -> dict[str, Any]:
        """Numbers for the history after every epoch, besides those of every task."""
        return {}

    def shown(self, model: Any, preset: Preset[Shape], data: Data, device: str) -> dict[str, Any]:
        """What the page shows of the attention of a trained model."""
        return {}

    def recorded(self, model: Any, preset: Preset[Shape], data: Data, device: str) -> list[Any]:
        """The attention to each sentence or picture that the page shows, which a slider over the steps changes."""
        return []

    def pictures(self, data: Data) -> np.ndarray | None:
        """Test pictures for the page, bytes (n, height, width, 3)."""
        return None
