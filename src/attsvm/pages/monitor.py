"""The page of ``attsvm monitor``: every measure over the steps, and the last values of all heads."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import lazy_loader
import numpy as np

from attsvm._utils.progress import counted
from attsvm.pages.page import AnyPart, Figures, Heading, Page, Table, Text
from attsvm.pages.records import Records
from attsvm.pages.schemas.inspection import MonitorResult
from attsvm.pages.words import listed, short

monitor_figures = lazy_loader.load("attsvm.pages.monitor_figures", suppress_warning=True)

COLLAPSED = 0.1
"""Heads with a smaller mean entropy, in nats, are named."""


class Recorded(NamedTuple):
    """A measure: its title for pages, a short one for tables, and what it means."""

    title: str
    short: str
    meaning: str


MEASURES = {
    "largest_logit": Recorded("Largest logit", "logit", "The largest logit over the sampled queries and tokens."),
    "largest_probability": Recorded("Largest probability", "largest p", "Mean over the queries with a choice."),
    "entropy": Recorded("Entropy", "entropy", "Entropy of a query's attention, in nats; mean as above."),
    "first_share": Recorded("Share to the first token", "first", "Mean attention to the first token of the sequence."),
    "spectral_norm": Recorded("Spectral norm of W", "‖W‖_2", "Largest singular value of W_K W_Q'/√d_h without biases."),
    "frobenius_norm": Recorded("Frobenius norm of W", "‖W‖_F", "Square root of the sum of squares of W."),
    "effective_rank": Recorded("Effective rank of W", "rank W", "exp of the entropy of the singular values of W."),
    "margin": Recorded(
        "Margin over the best margin",
        "margin",
        "On a fixed batch: the smallest margin of W, divided by the best margin for the same Frobenius norm and "
        "selection. It lies between the two edges of a band, which come from a primal and a dual solution.",
    ),
}
"""The measures of a monitor, in the order of the page; ``margin`` is made of ``margin_lower`` and ``margin_upper``."""


def recorded(records: Records) -> list[str]:
    """The names of the measures that were recorded, in the order of the page; those of other programs last."""
    there = [name for name, values in records.values.items() if np.isfinite(values).any()]
    ends = {"margin_lower", "margin_upper"}
    known = [name for name in MEASURES if name in there or (name == "margin" and ends <= set(there))]
    return known + [name for name in there if name not in {*MEASURES, *ends}]


def described(name: str) -> Recorded:
    """Title and meaning of a measure."""
    return MEASURES.get(name, Recorded(name.replace("_", " ").capitalize(), name, ""))


def summary(records: Records) -> str:
    """How much was recorded."""
    first, last = records.steps[[0, -1]]
    return f"{len(records.heads)} heads, {counted(len(records.steps), 'record')}, steps {first:,} to {last:,}"


def verdict(records: Records) -> str:
    """The largest logit, and the range of entropy at the last record."""
    parts = []
    for name, words in (("largest_logit", "largest logit"), ("spectral_norm", "spectral norm of W")):
        values = records.values.get(name)
        if values is not None and np.isfinite(values).any():
            at, head = np.unravel_index(np.nanargmax(values), values.shape)
            where = f"head {records.heads[head]} at step {records.steps[at]:,}"
            parts.append(f"The largest {words.removeprefix('largest ')} is {short(values[at, head])}, of {where}.")
    return " ".join(parts)


def notes(records: Records) -> list[str]:
    """Heads whose attention has nearly no entropy at the end."""
    entropy = records.values.get("entropy")
    if entropy is None:
        return []
    low = [head for head, value in zip(records.heads, entropy[-1], strict=True) if value < COLLAPSED]
    if not low:
        return []
    named = listed([f"head {head}" for head in low])
    some = f"{len(low)} heads have" if len(low) > 8 else f"{named} {'has' if len(low) == 1 else 'have'}"
    return [f"At the last record {some} an entropy below {COLLAPSED} nats."]


def monitor_page(records: Records, *, source: str, command: str) -> Page:
    """Make the page of a record, whose numbers docs/guide/results.md documents. ``source``: the file of the record."""
    names = recorded(records)
    measures = [described(name) for name in names]
    rows = [[head, *(_last(records, name, k) for name in names)] for k, head in enumerate(records.heads)]
    counts = summary(records)
    return Page(
        MonitorResult.fill(records, source=source, command=command),
        title="Attention heads during training",
        kicker=counts,
        verdict=verdict(records),
        body=partial(_body, records, Table(rows, ["head", *(one.title for one in measures)], kind="heads")),
        notes=notes(records),
        terminal=[
            f"{counts}.",
            Table(rows, ["head", *(one.short for one in measures)], more="heads"),
            *(f"{one.short}: {one.meaning}" for one in measures if one.meaning),
        ],
        made_by=counts,
        kept=("the figures", "figures/"),
    )


def _body(records: Records, last: Table) -> Iterator[AnyPart]:
    curves, maps = monitor_figures.draw_measures(records)
    yield Heading("Measures")
    yield Figures(curves, listed=True)
    if maps:
        yield Heading("All heads over the steps")
        yield Figures(maps, wide=[one.name for one in maps], listed=True)
    yield Heading("Last values", id="last", entry="Last values")
    yield Text("The last record of each measure. Click on the title of a column to sort the attention heads by it.")
    yield last


def _last(records: Records, name: str, head: int) -> str:
    ends = ("margin_lower", "margin_upper") if name == "margin" else (name,)
    found = []
    for end in ends:
        values = records.values[end][:, head]
        values = values[np.isfinite(values)]
        if not values.size:
            return "-"
        found.append(short(float(values[-1])))
    return " to ".join(found)
