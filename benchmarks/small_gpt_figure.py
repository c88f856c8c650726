"""The table and the figure of the measures of small GPTs; used by small_gpt.py."""

import math
from collections.abc import Callable, Iterable
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from attsvm.plot import style
from small_gpt_heads import JOINT, NORMS

Record = dict[str, Any]
Runs = dict[str, list[list[Record]]]
"""The records of each run, by the name of its arm."""

LOOKS = {
    "adamw": ("AdamW", style.VERMILLION, ":"),
    "muon-heads": ("Muon, each head", style.BLUE, "-"),
    "muon-fused": ("Muon, all heads", style.ORANGE, "--"),
    "muon-heads-shipped": ("Muon, each head, shipped", style.GREEN, "-."),
}


class Row(NamedTuple):
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


def joint_ratio(norm: str) -> Callable[[Record], float]:
    """The joint margin ratio of the heads of the last layer, after the last step."""
    return lambda record: record["together"]["ratios"][norm] if "together" in record else math.nan


ROWS = {
    "loss": Row("validation loss", lambda record: record["validation_loss"], 3),
    "rank": Row("effective rank", of_heads("effective_rank"), 2),
    "logit": Row("largest logit", of_heads("largest_logit", median), 1),
    "probability": Row("largest probability", of_heads("largest_probability"), 2),
    "saturated": Row("saturated queries (%)", lambda record: 100 * of_heads("saturated")(record), 1),
    "compared": Row("heads compared", lambda record: sum("ratios" in head for head in record["heads"]), 1),
    **{norm: Row(f"{norm} ratio", ratio(norm), 3) for norm in NORMS},
    **{f"joint {norm}": Row(f"{norm}, heads together", joint_ratio(norm), 3) for norm in JOINT},
}

INTERPOLATED = ("rank", "logit", "probability", "saturated", *NORMS)

PANELS = ("loss", "rank", "logit", "saturated", "nuclear", "spectral")


def spread(values: Iterable[float], digits: int) -> str:
    """Mean and standard deviation of the runs in which the number is defined."""
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return "-"
    deviation = f" ± {stdev(defined):.{digits}f}" if len(defined) > 1 else ""
    return f"{fmean(defined):.{digits}f}{deviation}"


def table(runs: Runs, rates: dict[str, float]) -> str:
    """The measures after the last step, as Markdown; and again where the runs reach a loss that all of them reach."""
    title = f"after {next(iter(runs.values()))[0][-1]['step']:,} steps"
    lines = _table(title, runs, ROWS, lambda run, row: row.of(run[-1]))
    lines.append(_line("largest logit change a step", [spread(map(largest_change, runs[arm]), 2) for arm in runs]))
    lines.append(_line("learning rate", [f"{rates[arm]:.2g}" for arm in runs]))
    loss = max(run[-1]["validation_loss"] for records in runs.values() for run in records)
    measures = {name: row for name, row in ROWS.items() if name in INTERPOLATED}
    title = f"interpolated at loss {loss:.3f}"
    return "\n".join([*lines, "", *_table(title, runs, measures, lambda run, row: at_loss(run, row, loss))])


def largest_change(run: list[Record]) -> float:
    """Largest change of a logit in the steps that follow the records."""
    return max(record["logit_change"] for record in run[:-1])


def at_loss(run: list[Record], row: Row, loss: float) -> float:
    """A measure where a run first reaches a validation loss, linear in the loss between two records."""
    last = next(k for k, record in enumerate(run) if record["validation_loss"] <= loss)
    after, before = run[last], run[max(last - 1, 0)]
    share = (loss - before["validation_loss"]) / ((after["validation_loss"] - before["validation_loss"]) or 1.0)
    return row.of(before) + share * (row.of(after) - row.of(before))


def _table(title: str, runs: Runs, rows: dict[str, Row], of: Callable[[list[Record], Row], float]) -> list[str]:
    lines = [_line(title, [LOOKS[arm][0] for arm in runs]), _line("---", ["---"] * len(runs))]
    for row in rows.values():
        lines.append(_line(row.title, [spread([of(run, row) for run in runs[arm]], row.digits) for arm in runs]))
    return lines


def _line(title: str, cells: list[str]) -> str:
    return "| " + " | ".join([title, *cells]) + " |"


def draw(runs: Runs) -> Figure:
    """Means over the seeds against steps, and the range of the seeds."""
    figure = Figure(figsize=(2 * style.WIDTH, 3.6))
    for axis, name in zip(figure.subplots(2, 3, sharex=True).flat, PANELS, strict=True):
        row = ROWS[name]
        for arm, records in runs.items():
            label, colour, line = LOOKS[arm]
            steps = [record["step"] for record in records[0]]
            values = [[row.of(record) for record in at] for at in zip(*records, strict=True)]
            shown = [(step, at) for step, at in zip(steps, values, strict=True) if not any(map(math.isnan, at))]
            if shown:
                at, seeds = zip(*shown, strict=True)
                axis.plot(at, [fmean(one) for one in seeds], line, color=colour, label=label)
                style.band(axis, at, [min(one) for one in seeds], [max(one) for one in seeds], colour)
        axis.set_ylabel(row.title)
        if name == "logit":
            axis.set_yscale("log")
        if name in NORMS:
            axis.set_ylim(0, 1)
        if axis.get_subplotspec().is_last_row():
            axis.set_xlabel("steps")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(LOOKS))
    return figure
