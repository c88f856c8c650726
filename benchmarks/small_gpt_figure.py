"""The table and the figure of the measures of small GPTs; used by small_gpt.py."""

import math
from collections.abc import Callable, Iterable
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from attsvm.report import style
from small_gpt_heads import NORMS

Record = dict[str, Any]
Runs = dict[str, list[list[Record]]]
"""The records of each run, by the name of its arm."""

LOOKS = {
    "adamw": ("AdamW", style.VERMILLION, ":"),
    "muon-heads": ("Muon, each head", style.BLUE, "-"),
    "muon-fused": ("Muon, all heads", style.ORANGE, "--"),
    "muon-heads-shipped": ("Muon, each head, shipped", style.GREEN, "-."),
}


class Column(NamedTuple):
    """A number of a record; NaN where it is not defined."""

    title: str
    of: Callable[[Record], float]
    digits: int


def mean(values: Iterable[float]) -> float:
    """NaN of no values."""
    found = list(values)
    return fmean(found) if found else math.nan


def of_heads(name: str, combine: Callable[[Iterable[float]], float] = mean) -> Callable[[Record], float]:
    """A measure of all heads of a record, combined."""
    return lambda record: combine(head[name] for head in record["heads"])


def ratio(norm: str) -> Callable[[Record], float]:
    """The mean margin ratio of the heads that are compared with an Att-SVM."""
    return lambda record: mean(head["ratios"][norm] for head in record["heads"] if "ratios" in head)


COLUMNS = {
    "loss": Column("validation loss", lambda record: record["validation_loss"], 3),
    "rank": Column("effective rank", of_heads("effective_rank"), 2),
    "logit": Column("largest logit", of_heads("largest_logit", median), 1),
    "probability": Column("largest probability", of_heads("largest_probability"), 2),
    "saturated": Column("saturated queries (%)", lambda record: 100 * of_heads("saturated")(record), 1),
    "compared": Column("heads compared", lambda record: sum("ratios" in head for head in record["heads"]), 1),
    **{norm: Column(f"{norm} ratio", ratio(norm), 3) for norm in NORMS},
}

PANELS = ("loss", "rank", "logit", "saturated", "nuclear", "spectral")


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation of the runs in which the number is defined."""
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return "-"
    deviation = f" ± {stdev(defined):.{digits}f}" if len(defined) > 1 else ""
    return f"{fmean(defined):.{digits}f}{deviation}"


def table(runs: Runs, rates: dict[str, float]) -> str:
    """The measures after the last step, as Markdown; and again where the runs reach a loss that all of them reach."""
    lines = _rows(runs, ["rate", "largest logit change a step"], COLUMNS, lambda run, column: column.of(run[-1]))
    for place, name in enumerate(runs, start=2):
        changes = [max(record["logit_change"] for record in run[:-1]) for run in runs[name]]
        lines[place] += f" {rates[name]:.2g} | {spread(changes, 2)} |"
    loss = max(run[-1]["validation_loss"] for records in runs.values() for run in records)
    measures = {name: column for name, column in COLUMNS.items() if name not in ("loss", "compared")}
    lines += ["", f"Interpolated at validation loss {loss:.3f}:", ""]
    lines += _rows(runs, [], measures, lambda run, column: at_loss(run, column, loss))
    return "\n".join(lines)


def at_loss(run: list[Record], column: Column, loss: float) -> float:
    """A measure where a run first reaches a validation loss, linear in the loss between two records."""
    last = next(k for k, record in enumerate(run) if record["validation_loss"] <= loss)
    after, before = run[last], run[max(last - 1, 0)]
    share = (loss - before["validation_loss"]) / ((after["validation_loss"] - before["validation_loss"]) or 1.0)
    return column.of(before) + share * (column.of(after) - column.of(before))


def _rows(
    runs: Runs, more: list[str], columns: dict[str, Column], of: Callable[[list[Record], Column], float]
) -> list[str]:
    titles = ["", *(column.title for column in columns.values()), *more]
    lines = ["| " + " | ".join(titles) + " |", "| --- " * len(titles) + "|"]
    for name, records in runs.items():
        cells = [spread([of(run, column) for run in records], column.digits) for column in columns.values()]
        lines.append("| " + " | ".join([LOOKS[name][0], *cells]) + " |")
    return lines


def draw(runs: Runs) -> Figure:
    """Means over the seeds against steps, and the range of the seeds."""
    figure = Figure(figsize=(2 * style.WIDTH, 3.6))
    for axis, name in zip(figure.subplots(2, 3, sharex=True).flat, PANELS, strict=True):
        column = COLUMNS[name]
        for arm, records in runs.items():
            label, colour, line = LOOKS[arm]
            steps = [record["step"] for record in records[0]]
            values = [[column.of(record) for record in at] for at in zip(*records, strict=True)]
            shown = [(step, at) for step, at in zip(steps, values, strict=True) if not any(map(math.isnan, at))]
            if shown:
                at, seeds = zip(*shown, strict=True)
                axis.plot(at, [fmean(one) for one in seeds], line, color=colour, label=label)
                style.band(axis, at, [min(one) for one in seeds], [max(one) for one in seeds], colour)
        axis.set_ylabel(column.title)
        if name == "logit":
            axis.set_yscale("log")
        if name in NORMS:
            axis.set_ylim(0, 1)
        if axis.get_subplotspec().is_last_row():
            axis.set_xlabel("steps")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(LOOKS))
    return figure
