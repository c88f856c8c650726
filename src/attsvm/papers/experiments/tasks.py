"""The tasks of the experiments, movie reviews and pictures: their data, presets and measurements."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.papers.experiments.models import PictureShape, TextShape, answers
from attsvm.papers.experiments.pictures import CLASSES, load_pictures, varied
from attsvm.papers.experiments.presets import PICTURES, REVIEWS, Preset, Shape
from attsvm.papers.experiments.reviews import PROBE, load_reviews, load_tokenizer
from attsvm.papers.experiments.sentences import read_sentences
from attsvm.papers.experiments.tables import TaskRows

SHOWN_PICTURES = 6


@dataclass(frozen=True)
class Data:
    """What a model is trained and tested on."""

    train: TaskRows
    test: TaskRows
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


class View(NamedTuple):
    """The attention of a model to a few inputs that the page shows."""

    numbers: dict[str, Any]  # for the history after every epoch, besides those of every task
    shown: dict[str, Any]  # what the page shows of a trained model
    # the attention to each sentence or picture, which a slider over the steps changes. Rounded, because records are in
    # every checkpoint.
    record: list[Any]


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

        ``source``, ``validation_rows``: as for :func:`attsvm.papers.experiments.tables.load_rows`. ``vocabulary``: as
        for :func:`attsvm.papers.experiments.reviews.load_tokenizer`.

        Raises ProblemError if data or vocabulary cannot be read, or do not fit the preset.
        """

    @abstractmethod
    def view(self, model: Any, preset: Preset[Shape], data: Data, device: str) -> View:
        """The attention of a model to what the page shows."""

    def pictures(self, data: Data) -> np.ndarray | None:
        """Test pictures for the page, bytes (n, height, width, 3)."""
        return None


class ReviewTask(Task[TextShape]):
    """Movie reviews; measures the attention to words that carry the sentiment, in sentences."""

    name = "imdb"
    hub_name = "stanfordnlp/imdb"
    presets = REVIEWS

    def load(
        self, preset: Preset[TextShape], source: str, *, vocabulary: str | None = None, validation_rows: int = 0
    ) -> Data:
        tokenizer = load_tokenizer(vocabulary)
        # special tokens have numbers of their own
        largest = max([*tokenizer.get_vocab().values(), *tokenizer.encode(PROBE).ids])
        if largest >= preset.shape.vocabulary:
            expected = f"expected numbers of tokens below {preset.shape.vocabulary}"
            raise ProblemError(f"{vocabulary or 'vocabulary'}: {expected}, got {largest}")
        length, rows = preset.shape.length, _rows(preset, validation_rows)
        return Data(*load_reviews(source, tokenizer, length, **rows), source, tokenizer)

    def view(self, model: Any, preset: Preset[TextShape], data: Data, device: str) -> View:
        found = read_sentences(model, data.tokenizer, preset.shape.length, device)
        return View(
            {"key_word_score": found.score, "key_word_scaled": found.scaled},
            {"key_words": found._asdict()},
            [
                {"shares": _rounded([share for *_, share, _ in one["pieces"]]), "scaled": _rounded(one["scaled"])}
                for one in found.sentences
            ],
        )


class PictureTask(Task[PictureShape]):
    """CIFAR-10; shows the attention of the class token to the patches of some test pictures."""

    name = "cifar10"
    hub_name = "uoft-cs/cifar10"
    presets = PICTURES
    augment = staticmethod(varied)

    def load(
        self, preset: Preset[PictureShape], source: str, *, vocabulary: str | None = None, validation_rows: int = 0
    ) -> Data:
        return Data(*load_pictures(source, **_rows(preset, validation_rows)), source)

    @torch.no_grad()
    def view(self, model: Any, preset: Preset[PictureShape], data: Data, device: str) -> View:
        inputs = data.test.inputs[:SHOWN_PICTURES].to(device)
        # of the last layer's class token, averaged over heads
        attention = model.attention_maps(inputs)[-1][:, :, 0, 1:].mean(1)
        side = preset.shape.size // preset.shape.patch
        patches = attention.reshape(-1, side, side).cpu().tolist()
        training = model.training
        predicted = answers(model.eval()(inputs)).tolist()
        model.train(training)
        labels = data.test.labels[:SHOWN_PICTURES].tolist()
        shown = [
            {"row": row, "label": CLASSES[label], "predicted": CLASSES[found], "attention": patches[row]}
            for row, (label, found) in enumerate(zip(labels, predicted, strict=True))
        ]
        return View({}, {"pictures": shown}, [[_rounded(line) for line in picture] for picture in patches])

    def pictures(self, data: Data) -> np.ndarray | None:
        """The first test pictures."""
        shown: np.ndarray = data.test.inputs[:SHOWN_PICTURES].permute(0, 2, 3, 1).numpy()
        return shown


def _rows(preset: Preset[Any], validation_rows: int) -> dict[str, Any]:
    return {"train_rows": preset.train_rows, "test_rows": preset.test_rows, "validation_rows": validation_rows}


def _rounded(shares: list[float]) -> list[float]:
    return [round(share, 4) for share in shares]


TASKS: dict[str, Task[Any]] = {task.name: task for task in (ReviewTask(), PictureTask())}
"""Every task by its name. A new one is a new entry."""


def find_task(name: str) -> Task[Any]:
    """The task of this name.

    Raises ProblemError if there is none.
    """
    if name not in TASKS:
        raise ProblemError(f"task: expected {' or '.join(TASKS)}, got {name!r}")
    return TASKS[name]
