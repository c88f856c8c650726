"""One of the paper's experiments: a preset, its data, and a run of each optimiser, with what is measured in them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from attsvm.apps.experiments.measurements import EDGES, measure, weight_histograms
from attsvm.apps.experiments.models import Classifier, PictureShape, TextClassifier, TextShape, build
from attsvm.apps.experiments.pictures import CLASSES, load_pictures, varied
from attsvm.apps.experiments.presets import Preset
from attsvm.apps.experiments.reviews import load_reviews, load_tokenizer
from attsvm.apps.experiments.sentences import read_sentences
from attsvm.apps.experiments.training import At, Options, Outcome, Rows, answers, fit, potential_of, seed_everything
from attsvm.errors import ProblemError

MEASURED_ROWS = 100
"""Test rows on which attention is measured after every epoch."""

SHOWN_PICTURES = 6


@dataclass(frozen=True)
class Data:
    """What a preset is trained and tested on.

    Attributes
    ----------
    train, test : Rows
    tokenizer : Tokenizer or None
        Of texts.
    source : str
    sha256 : str
        Hash of all of it.
    """

    train: Rows
    test: Rows
    tokenizer: Any
    source: str
    sha256: str


def load_data(preset: Preset, source: str, vocabulary: str | None = None, validation_rows: int = 0) -> Data:
    """The rows that a preset wants.

    Parameters
    ----------
    preset : Preset
    source : str
        As :func:`read_splits` takes it.
    vocabulary : str, optional
        As :func:`attsvm.apps.experiments.reviews.load_tokenizer` takes it.
    validation_rows : int
        If any, so many rows of the training set, none of them trained on, take the place of the test rows.

    Raises
    ------
    ProblemError
        If data or vocabulary cannot be read, or do not fit the preset.
    """
    drawn: dict[str, Any] = {
        "train_rows": preset.train_rows,
        "test_rows": preset.test_rows,
        "validation_rows": validation_rows,
    }
    tokenizer = None
    if isinstance(preset.shape, TextShape):
        tokenizer = load_tokenizer(vocabulary)
        if tokenizer.get_vocab_size() > preset.shape.vocabulary:
            raise ProblemError(
                f"vocabulary: {tokenizer.get_vocab_size()} tokens found, at most {preset.shape.vocabulary} wanted"
            )
        train, test = load_reviews(source, tokenizer, preset.shape.length, **drawn)
    else:
        train, test = load_pictures(source, **drawn)
    found = hashlib.sha256()
    for rows in (train, test):
        found.update(rows.inputs.numpy().tobytes())
        found.update(rows.labels.numpy().tobytes())
    return Data(train, test, tokenizer, source, found.hexdigest())


def default_learning_rate(preset: Preset, optimizer: str) -> float:
    """What the preset gives an optimiser.

    Raises
    ------
    ProblemError
        If it gives none.
    """
    potential_of(optimizer)
    found = preset.learning_rates.get(optimizer)
    if found is None:
        known = ", ".join(preset.learning_rates)
        raise ProblemError(
            f"--learning-rate: expected a number, because the preset has none for {optimizer!r}, only for {known}"
        )
    return found


def make_options(preset: Preset, optimizer: str, learning_rate: float | None = None, **changes: Any) -> Options:
    """The options of a run with the preset, changed where told."""
    rate = default_learning_rate(preset, optimizer) if learning_rate is None else learning_rate
    options = Options(optimizer, rate, preset.epochs, preset.batch, reduction=preset.reduction, stop_at=preset.stop_at)
    return replace(options, **changes)


def run(
    preset: Preset,
    data: Data,
    options: Options,
    folder: Path,
    *,
    resume: bool = False,
    progress: Callable[[At], None] | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train one model and measure it.

    Parameters
    ----------
    preset : Preset
    data : Data
    options : Options
    folder : Path
        That exists, for the checkpoint.
    resume, progress, tensorboard
        As :func:`attsvm.apps.experiments.training.fit` takes them.

    Returns
    -------
    dict
        What ``result.json`` holds of a run: see :doc:`docs/notes/real_data.md`.
    """
    seed_everything(options.seed)
    model = build(preset.shape)
    sample = data.test.batch(torch.arange(min(MEASURED_ROWS, len(data.test))), torch.device(options.device))[0]

    def measured(trained: Any) -> dict[str, Any]:
        found = measure(trained, sample)
        if isinstance(trained, TextClassifier):
            found["key_word_score"], _, _ = _sentences(trained, preset, data, options)
        return found

    outcome = fit(
        model,
        data.train,
        data.test,
        options,
        folder,
        resume=resume,
        identity={"data": data.sha256, "model": repr(preset.shape)},
        augment=varied if preset.augment else None,
        measure=measured,
        progress=progress,
        tensorboard=tensorboard,
    )
    return {**_numbers(outcome, options, model), **_shown(model, preset, data, options)}


def _numbers(outcome: Outcome, options: Options, model: Classifier) -> dict[str, Any]:
    trained = outcome.history[1:]
    best = max(trained, key=lambda row: row["test_accuracy"], default=None)
    return {
        "optimizer": options.optimizer,
        "learning_rate": options.learning_rate,
        "seed": options.seed,
        "status": outcome.status,
        "steps": outcome.step,
        "seconds": outcome.seconds,
        "best": None if best is None else {key: best[key] for key in ("epoch", "test_accuracy", "test_loss")},
        "history": outcome.history,
        "histograms": weight_histograms(model),
        "edges": EDGES.tolist(),
    }


def _shown(model: Classifier, preset: Preset, data: Data, options: Options) -> dict[str, Any]:
    """What the page shows of a model's attention."""
    if isinstance(model, TextClassifier):
        score, even, readings = _sentences(model, preset, data, options)
        return {"key_words": {"score": score, "even": even, "sentences": readings}}
    if not isinstance(preset.shape, PictureShape):
        return {}
    inputs = data.test.inputs[:SHOWN_PICTURES].to(options.device)
    side = preset.shape.size // preset.shape.patch
    attention = model.attention_maps(inputs)[-1][:, :, 0, 1:].mean(1).unflatten(-1, (side, side)).cpu()
    with torch.no_grad():
        predicted = answers(model.eval()(inputs)).tolist()
    labels = data.test.labels[:SHOWN_PICTURES].tolist()
    return {
        "pictures": [
            {"row": row, "label": CLASSES[label], "predicted": CLASSES[found], "attention": attention[row].tolist()}
            for row, (label, found) in enumerate(zip(labels, predicted, strict=True))
        ]
    }


def _sentences(model: TextClassifier, preset: Preset, data: Data, options: Options) -> tuple[float, float, list[Any]]:
    assert isinstance(preset.shape, TextShape)
    return read_sentences(model, data.tokenizer, preset.shape.length, options.device)
