"""The predictions of ``attsvm predict``: on the terminal, as JSON, and as tables of bags and of tokens."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from attsvm._utils.files import atomic_write
from attsvm.estimator import Predictions
from attsvm.pages.class_report import class_report, class_table, report_rows
from attsvm.pages.links import csv_text
from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.predictions import PredictResult
from attsvm.pages.words import listed, number, percent, rate, share_interval

CONTRIBUTION, SHARE = "contribution to the decision", "share of attention"
"""The columns that say how much the selected token decides, and how much attention it receives."""


def predictions_page(
    predictions: Predictions, *, model: dict[str, str], source: str, bag: str = "bag", **about: Any
) -> Page:
    """Make the page of predictions; it has no HTML.

    ``model``: the ``source`` of the model and its ``kind``. ``bag``: what a bag is called. ``about``: the command, and
    the limit on threads. Its ``others`` write the tables ``predictions.csv`` and ``instances.csv``.
    """
    classes, report = [str(name) for name in predictions.classes], predictions.report
    found, counts = np.unique(predictions.predicted, return_counts=True)
    numbers = PredictResult.fill(
        predictions,
        **about,
        model={**model, "classes": classes, "ensemble": list(predictions.ensemble)},
        source=source,
        selected_by="attention" if predictions.contributions is None else "contribution",
        counts=dict(zip(map(str, found), counts.tolist(), strict=True)),
        accuracy=None if report is None else report.accuracy,
        report=None if report is None else class_report(report),
        predictions=[*_bags(predictions)],
    )
    return Page(
        numbers,
        terminal=[*_terminal(numbers, bag)],
        notes=[*_notes(numbers, bag, detects=predictions.attention is None)],
        others={
            "predictions.csv": csv_saver(_of_bags(predictions, bag)),
            "instances.csv": csv_saver(_of_tokens(predictions, bag)),
        },
    )


Column = tuple[str, np.ndarray | None]
"""The title of a column and its entries; None if it is left out. A user may call bags like another column."""


def csv_saver(columns: Sequence[Column]) -> Callable[[Any], object]:
    """What writes the columns that there are as CSV to a path."""
    return partial(_save, [(name, column) for name, column in columns if column is not None])


def _save(columns: Sequence[tuple[str, np.ndarray]], path: str | os.PathLike[str]) -> None:
    rows = zip(*([None if cell != cell else cell for cell in column.tolist()] for _, column in columns), strict=True)
    with atomic_write(path) as stream:
        stream.write(csv_text([name for name, _ in columns], rows).encode())


def _of_bags(predictions: Predictions, bag: str) -> list[Column]:
    """The columns of the table of bags."""
    return [
        (bag, predictions.names),
        ("predicted", predictions.predicted),
        *_of_classes("probability of", predictions, predictions.probability),
        ("selected", predictions.selected),
        (CONTRIBUTION, predictions.contribution),
        (SHARE, predictions.share),
        ("label", predictions.labels),
    ]


def _of_tokens(predictions: Predictions, bag: str) -> list[Column]:
    """The columns of the table of tokens."""
    parts = predictions.contributions
    return [
        (bag, predictions.names[predictions.owners]),
        ("token", predictions.tokens),
        *([] if parts is None else _of_classes("contribution to", predictions, parts)),
        *_of_classes("score for", predictions, predictions.instance_scores),
        (SHARE, predictions.attention),
    ]


def _of_classes(what: str, predictions: Predictions, values: np.ndarray) -> list[Column]:
    return [(f"{what} {name}", column) for name, column in zip(predictions.classes, values.T, strict=True)]


def _bags(predictions: Predictions) -> Iterable[dict[str, Any]]:
    share, contribution, labels = predictions.share, predictions.contribution, predictions.labels
    predicted, selected = predictions.predicted, predictions.selected
    for i, name in enumerate(predictions.names.tolist()):
        yield {
            "bag": str(name),
            "predicted": str(predicted[i]),
            "probability": predictions.probability[i],
            "selected": selected[i],
            "contribution": None if contribution is None else contribution[i],
            "share": None if share is None else share[i],
            "label": None if labels is None else str(labels[i]),
        }


def _terminal(numbers: dict[str, Any], bag: str) -> Iterable[Table]:
    bags = numbers["predictions"]
    predicted = [[one["predicted"], percent(max(one["probability"]))] for one in bags]
    yield bags_table(bags, bag, ["predicted", "probability"], predicted, "label", words=2)
    report = numbers["report"]
    if report is None:
        yield Table([(name, f"{count:,}") for name, count in numbers["counts"].items()], title="Predicted")
        return
    accuracy = rate(numbers["accuracy"], len(bags), share_interval(numbers["accuracy"], len(bags)))
    yield Table([("accuracy", accuracy), *report_rows(report)], title="Prediction")
    yield class_table(report, several(bag), "Classes")


def bags_table(
    bags: Sequence[dict[str, Any]],
    bag: str,
    titles: Sequence[str],
    predicted: Sequence[Sequence[str]],
    known: str,
    words: int,
) -> Table:
    """A row for each bag: what is predicted, the selected token with what it decides, and what is ``known``.

    ``titles``, ``predicted``: columns of what is predicted. ``known``: the field that is null where it is not known.
    ``words``: the number of columns that are no numbers.
    """
    words_of: dict[str, Callable[[Any], str]] = {"contribution": number, "share": _share, known: _known}
    last = {name: written for name, written in words_of.items() if any(one[name] is not None for one in bags)}
    rows = [
        [one["bag"], *cells, str(one["selected"]), *(written(one[name]) for name, written in last.items())]
        for one, cells in zip(bags, predicted, strict=True)
    ]
    names = [SHARE if name == "share" else name for name in last]
    return Table(rows, [bag, *titles, "selected", *names], words=words, more=f"rows, one for each {bag}")


def _share(value: float | None) -> str:
    return "-" if value is None else percent(value)


def _known(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def several(bag: str) -> str:
    """What several bags are called."""
    return "texts" if bag == "text" else "bags"


def _notes(numbers: dict[str, Any], bag: str, detects: bool) -> Iterable[str]:
    """``detects``: whether the classifier is one of detectors, which have no attention."""
    others = numbers["model"]["ensemble"]
    if others and numbers["selected_by"] == "contribution":
        yield ensemble_note("detectors" if detects else "attention", others)
    elif others:
        yield (
            f"N-grams decide {'alone' if others == ['n-grams alone'] else 'together with attention'}. The selected "
            "word is the word with the largest attention; the classifier's contributions(X) gives the contributions "
            "of words and n-grams."
        )
    if detects and len(numbers["model"]["classes"]) == 2:
        yield (
            "The selected token is the one with the largest contribution to the positive class. If the other class is "
            "predicted, this token contributes least to the decision."
        )
    alone = [*numbers["counts"]]
    if len(alone) == 1 and len(numbers["predictions"]) > 1:
        yield f"All {len(numbers['predictions']):,} {several(bag)} are predicted as “{alone[0]}”."


def ensemble_note(network: str, members: Sequence[str]) -> str:
    """What decides in an ensemble, and what is said of its tokens."""
    return (
        f"The classifier is an ensemble of {network} and of ridge regressions on pooled features "
        f"({listed([*members])}). Tokens are selected by their contribution to the joint decision of all parts."
    )
