"""Compare measured test accuracies with the published ones, in one table over the folders of several experiments."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from attsvm._utils.files import reading, regular_file
from attsvm.errors import ProblemError
from attsvm.pages.experiment.names import short_name_of

COLUMNS = ["preset", "layers", "optimiser", "published (%)", "measured (%)", "best epoch", "seeds"]
ORDER_COLUMNS = ["preset", "layers", "published order", "measured order", "verdict"]


class Comparison(NamedTuple):
    """Rows of the tables of accuracies and of orders, with :data:`COLUMNS` and :data:`ORDER_COLUMNS`, and notes."""

    rows: list[list[str]]
    orders: list[list[str]]
    notes: list[str]


def read_results(folders: Iterable[str | os.PathLike[str]], task: str) -> list[dict[str, Any]]:
    """The results of earlier experiments of a task.

    ``folders``: each with the ``result.json`` of an experiment.

    Raises ProblemError if a folder has no result of this task.
    """
    found = []
    for folder in folders:
        path = Path(folder) / "result.json"
        with reading(path, "not the result of an experiment"):
            result = json.loads(regular_file(path).read_text(encoding="utf-8"))
            if result["kind"] != "experiment" or result["task"] != task:
                raise ProblemError(f"{path}: expected an experiment of {task}, got one of {result.get('task')}")
            found.append(result)
    return found


def comparison(result: dict[str, Any]) -> Comparison | None:
    """The tables of ``result.json``; None if nothing is published for its presets."""
    published = result.get("published")
    if published is None:
        return None
    notes = [
        f"{order['preset']} has {order['scale']}; its published accuracies are those of the whole size."
        for order in published["orders"]
        if order["scale"]
    ]
    rows, orders = map(_row, published["accuracies"]), map(_order, published["orders"])
    return Comparison(list(rows), list(orders), notes)


def _row(one: dict[str, Any]) -> list[str]:
    published = "-" if one["published"] is None else f"{100 * one['published']:.2f}"
    measured, best = "not run", "-"
    if one["measured"]:
        measured = f"{100 * fmean(one['measured']):.2f} ± {100 * one['error']:.2f}"
        best = ", ".join(f"{epoch} of {last}" for epoch, last in zip(one["best_epochs"], one["epochs"], strict=True))
    names = [one["preset"], str(one["layers"]), short_name_of(one["optimizer"])]
    return [*names, published, measured, best, str(len(one["measured"]))]


def _order(one: dict[str, Any]) -> list[str]:
    return [one["preset"], str(one["layers"]), _chain(one["published"]), _chain(one["measured"]), one["verdict"]]


def _chain(names: list[str]) -> str:
    return " > ".join(short_name_of(name) for name in names) if len(names) > 1 else "-"
