"""The tasks of the experiments: movie reviews and pictures."""

from typing import Any

import numpy as np
import torch

from attsvm.errors import ProblemError
from attsvm.papers.experiments.evaluation import answers
from attsvm.papers.experiments.models import PictureClassifier, PictureShape, TextClassifier, TextShape
from attsvm.papers.experiments.pictures import CLASSES, load_pictures, varied
from attsvm.papers.experiments.presets import PICTURES, REVIEWS, Preset
from attsvm.papers.experiments.reviews import load_reviews, load_tokenizer
from attsvm.papers.experiments.sentences import KeyWords, read_sentences
from attsvm.papers.experiments.task import Data, Task

SHOWN_PICTURES = 6


class Reviews(Task[TextShape]):
    """Movie reviews; measures the attention to words that carry the sentiment."""

    name = "imdb"
    hub_name = "stanfordnlp/imdb"
    presets = REVIEWS

    def load(
        self, preset: Preset[TextShape], source: str, *, vocabulary: str | None = None, validation_rows: int = 0
    ) -> Data:
        """Reviews as token numbers."""
        tokenizer = load_tokenizer(vocabulary)
        if tokenizer.get_vocab_size() > preset.shape.vocabulary:
            raise ProblemError(
                f"vocabulary: expected at most {preset.shape.vocabulary} tokens, got {tokenizer.get_vocab_size()}"
            )
        train, test = load_reviews(
            source,
            tokenizer,
            preset.shape.length,
            train_rows=preset.train_rows,
            test_rows=preset.test_rows,
            validation_rows=validation_rows,
        )
        return Data(train, test, source, tokenizer)

    def measured(self, model: Any, preset: Preset[TextShape], data: Data, device: str) -> dict[str, Any]:
        """The key-word score, and the attention to key words on the scale from 0 to 1."""
        found = self._key_words(model, preset, data, device)
        return {"key_word_score": found.score, "key_word_scaled": found.scaled}

    def shown(self, model: Any, preset: Preset[TextShape], data: Data, device: str) -> dict[str, Any]:
        """The attention to every word of the sentences."""
        return {"key_words": self._key_words(model, preset, data, device)._asdict()}

    def recorded(self, model: Any, preset: Preset[TextShape], data: Data, device: str) -> list[Any]:
        """For each sentence the attention to its words, ``shares``, and the same on the scale from 0 to 1."""
        return [
            {"shares": _rounded([share for *_, share, _ in one["pieces"]]), "scaled": _rounded(one["scaled"])}
            for one in self._key_words(model, preset, data, device).sentences
        ]

    def _key_words(self, model: TextClassifier, preset: Preset[TextShape], data: Data, device: str) -> KeyWords:
        return read_sentences(model, data.tokenizer, preset.shape.length, device)


class Pictures(Task[PictureShape]):
    """CIFAR-10; shows the attention of the class token to the patches."""

    name = "cifar10"
    hub_name = "uoft-cs/cifar10"
    presets = PICTURES
    augment = staticmethod(varied)

    def load(
        self, preset: Preset[PictureShape], source: str, *, vocabulary: str | None = None, validation_rows: int = 0
    ) -> Data:
        train, test = load_pictures(
            source, train_rows=preset.train_rows, test_rows=preset.test_rows, validation_rows=validation_rows
        )
        return Data(train, test, source)

    def shown(self, model: Any, preset: Preset[PictureShape], data: Data, device: str) -> dict[str, Any]:
        """Attention of the class token to the patches, and predicted classes, for some test pictures."""
        attention = _class_attention(model, preset, data, device).tolist()
        with torch.no_grad():
            predicted = answers(model.eval()(data.test.inputs[:SHOWN_PICTURES].to(device))).tolist()
        labels = data.test.labels[:SHOWN_PICTURES].tolist()
        return {
            "pictures": [
                {"row": row, "label": CLASSES[label], "predicted": CLASSES[found], "attention": attention[row]}
                for row, (label, found) in enumerate(zip(labels, predicted, strict=True))
            ]
        }

    def recorded(self, model: Any, preset: Preset[PictureShape], data: Data, device: str) -> list[Any]:
        """For each picture the attention to its patches."""
        of_pictures = _class_attention(model, preset, data, device).tolist()
        return [[_rounded(line) for line in attention] for attention in of_pictures]

    def pictures(self, data: Data) -> np.ndarray | None:
        """The first test pictures."""
        shown: np.ndarray = data.test.inputs[:SHOWN_PICTURES].permute(0, 2, 3, 1).numpy()
        return shown


def _class_attention(model: PictureClassifier, preset: Preset[PictureShape], data: Data, device: str) -> torch.Tensor:
    """Attention of the last layer's class token, averaged over heads, to the patches (n, side, side) of pictures."""
    side = preset.shape.size // preset.shape.patch
    maps = model.attention_maps(data.test.inputs[:SHOWN_PICTURES].to(device))
    return maps[-1][:, :, 0, 1:].mean(1).reshape(-1, side, side).cpu()


def _rounded(shares: list[float]) -> list[float]:
    """Records are for a page, and they are in every checkpoint."""
    return [round(share, 4) for share in shares]


TASKS: dict[str, Task[Any]] = {task.name: task for task in (Reviews(), Pictures())}
"""Every task by its name. A new one is a new entry."""


def find_task(name: str) -> Task[Any]:
    """The task of this name.

    Raises ProblemError if there is none.
    """
    if name not in TASKS:
        raise ProblemError(f"task: expected {' or '.join(TASKS)}, got {name!r}")
    return TASKS[name]
