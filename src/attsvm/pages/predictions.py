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
from attsvm.pages.words import percent, rate, share_interval


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
        model={**model, "classes": classes},
        source=source,
        counts=dict(zip(map(str, found), counts.tolist(), strict=True)),
        accuracy=None if report is None else report.accuracy,
        report=None if report is None else class_report(report),
        predictions=[*_bags(predictions)],
    )
    return Page(
        numbers,
        terminal=[*_terminal(numbers, bag)],
        notes=[*_notes(numbers, bag)],
        others={
            "predictions.csv": _saver(_header(predictions, bag), _rows(predictions)),
            "instances.csv": _saver([bag, "token", *_columns(predictions)], _tokens(predictions)),
        },
    )


def _saver(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Callable[[Any], object]:
    return partial(_save, header, rows)


def _save(header: Sequence[str], rows: Iterable[Sequence[Any]], path: str | os.PathLike[str]) -> None:
    with atomic_write(path) as stream:
        stream.write(csv_text(header, rows).encode())


def _bags(predictions: Predictions) -> Iterable[dict[str, Any]]:
    share, labels = predictions.share, predictions.labels
    for i, name in enumerate(predictions.names.tolist()):
        yield {
            "bag": str(name),
            "predicted": str(predictions.predicted[i]),
            "probability": predictions.probability[i],
            "selected": predictions.selected[i],
            "share": None if share is None else share[i],
            "label": None if labels is None else str(labels[i]),
        }


def _header(predictions: Predictions, bag: str) -> list[str]:
    names = [bag, "predicted", *(f"probability of {name}" for name in predictions.classes), "selected"]
    return names + ["share"] * (predictions.attention is not None) + ["label"] * (predictions.labels is not None)


def _rows(predictions: Predictions) -> Iterable[list[Any]]:
    columns = [predictions.names, predictions.predicted, *predictions.probability.T, predictions.selected]
    columns += [column for column in (predictions.share, predictions.labels) if column is not None]
    return map(list, zip(*(column.tolist() for column in columns), strict=True))


def _columns(predictions: Predictions) -> list[str]:
    return ["share"] * (predictions.attention is not None) + [f"score for {name}" for name in predictions.classes]


def _tokens(predictions: Predictions) -> Iterable[list[Any]]:
    attention = [] if predictions.attention is None else [predictions.attention]
    columns = [predictions.names[predictions.owners], predictions.tokens, *attention, *predictions.instance_scores.T]
    return map(list, zip(*(column.tolist() for column in columns), strict=True))


def _terminal(numbers: dict[str, Any], bag: str) -> Iterable[Table]:
    has_share, has_label = (numbers["predictions"][0][name] is not None for name in ("share", "label"))
    columns = [bag, "predicted", "probability", "selected"] + ["share"] * has_share + ["label"] * has_label
    rows = []
    for one in numbers["predictions"]:
        row = [one["bag"], one["predicted"], percent(max(one["probability"])), str(one["selected"])]
        rows.append(row + [percent(one["share"])] * has_share + [one["label"]] * has_label)
    yield Table(rows, columns, words=2, more=f"rows, one for each {bag}")
    report = numbers["report"]
    if report is None:
        yield Table([(name, f"{count:,}") for name, count in numbers["counts"].items()], title="Predicted")
        return
    count = len(numbers["predictions"])
    accuracy = rate(numbers["accuracy"], count, share_interval(numbers["accuracy"], count))
    yield Table([("accuracy", accuracy), *report_rows(report)], title="Prediction")
    yield class_table(report, _several(bag), "Classes")


def _several(bag: str) -> str:
    return "texts" if bag == "text" else "bags"


def _notes(numbers: dict[str, Any], bag: str) -> Iterable[str]:
    alone = [*numbers["counts"]]
    if len(alone) == 1 and len(numbers["predictions"]) > 1:
        yield f"All {len(numbers['predictions']):,} {_several(bag)} are predicted as “{alone[0]}”."
