"""The page of ``attsvm compare``: which heads changed their selection, with their attention side by side."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm._utils.progress import counted
from attsvm._utils.text import head_label
from attsvm.pages.attention import Square, attention_square
from attsvm.pages.inspection import REBUILT
from attsvm.pages.inspection_numbers import head_numbers, largest_error
from attsvm.pages.page import AnyPart, Details, Figures, Heading, Page, SpecialPart, Table, Text
from attsvm.pages.schemas.inspection import ComparedModelFields, CompareResult, HeadChangeFields
from attsvm.pages.words import kinds_of_layers, listed, percent, short

if TYPE_CHECKING:
    from attsvm.inspect import HeadChange, Layer, Series

comparison_figures = lazy_loader.load("attsvm.pages.comparison_figures", suppress_warning=True)

SHOWN = 8
"""Most heads with other weights that a sentence names."""

MEASURES = {"largest_probability": "Largest probability", "effective_tokens": "Effective number of tokens"}
"""Measures of the table, each before and after."""


MOST_HEADS = 4
"""Heads that are drawn."""

LARGEST_CELL, LEAST_CELL = 1.35, 0.62
"""Width of a cell in rem. Cells shrink so that two squares fit side by side, as long as the names stay legible."""

HALF_PAGE = 21.5
"""Width of half a page in rem, without the names of the rows."""

MOST_LINES = 12
"""Changed queries that are listed for a head."""


def comparison_page(series: "Series", *, tokens: list[list[str]], sentence: int | None, **about: Any) -> Page:
    """Make the page of a comparison, whose numbers docs/guide/results.md documents.

    ``tokens``: the tokens of every sequence as text. ``sentence``: the sequence whose attention is drawn, counted from
    0. ``about``: ``source`` (models and text, as given), ``command``, ``threads`` and ``seconds``.
    """
    first, names = series.inspections[0], model_names(series)
    if len(names) == 2:
        title = f"{names[0]} and {names[1]}"
    else:
        title = f"{len(names)} {'checkpoints' if series.steps else 'models'}, from {names[0]} to {names[-1]}"
    counts = f"{first.num_sequences:,} sequences, {first.num_queries:,} queries"
    few = short_rows(series)
    return Page(
        _numbers(series, **about),
        title=title,
        kicker=summary(series),
        verdict=verdict(series),
        body=partial(_body, series, tokens, sentence),
        notes=notes(series),
        terminal=[
            f"{summary(series)}.",
            *([few] if few.rows else []),
            *([left_out(series)] if left_out(series) else []),
        ],
        made_by=f"{counts}; seed {first.seed}",
        kept=("the figures", "figures/"),
    )


def _body(series: "Series", tokens: list[list[str]], sentence: int | None) -> Iterator[AnyPart]:
    yield Heading("Measures", id="figures", entry="Measures")
    yield Figures(comparison_figures.draw_comparison(series))
    changed = [one for one in series.total.heads if one.changed > 0][:MOST_HEADS]
    if changed:
        yield Heading("Heads that changed most")
        yield Text(
            "A row for each query, a column for each token. The stronger the blue, the more attention. The frame is "
            "the selected token; hatched tokens are masked. Queries in bold select another token."
        )
    layers = sorted({one.layer for one in changed})
    before, after = (_layers(end, layers) for end in series.ends)
    for one in changed:
        yield from _head(one, before.get(one.layer), after.get(one.layer), series, tokens, sentence)
    table = change_rows(series)
    if table.rows:
        yield Heading("All changed heads", id="all-heads", entry="All changed heads")
        weights = (
            " ‖ΔW‖/‖W‖ is the change of W, of the key weights and of the query weights, divided by their norm before; "
            "it is 0 "
        )
        weights += "where only the input of the attention head differs."
        yield Text(
            "Click on the title of a column to sort the attention heads by it. A margin ratio certainly moved if its "
            f"two intervals are disjoint.{weights if series.total.heads[0].weights else ''} {left_out(series)}"
        )
        yield table


def _head(
    change: "HeadChange",
    before: "Layer | None",
    after: "Layer | None",
    series: "Series",
    tokens: list[list[str]],
    sentence: int | None,
) -> Iterator[AnyPart]:
    """A head that changed: its squares before and after on one sequence, and its changed queries there.

    By default the sequence is the one in which most of its queries changed.
    """
    in_sequence = np.bincount(change.queries[:, 0], minlength=len(tokens))
    at = int(in_sequence.argmax()) if sentence is None else sentence
    names, ends, count = tokens[at], model_names(series), int(in_sequence[at])
    head = f"{change.layer}.{change.head}"
    yield Heading(
        f"Head {_label(series, change)}: {percent(change.changed)} of the selections changed",
        3,
        f"head-{head}",
        f"Head {head}",
    )
    yield Text(f"Sequence {at}, in which {count} {'query' if count == 1 else 'queries'} changed.", "")
    if before is None or after is None or before.tokens.shape[:2] != (len(tokens), len(names)):
        return  # as in cross-attention: these are not the tokens of the text
    here = change.queries[:, 0] == at
    rows = change.queries[here, 1]
    places = before.positions[at]
    queries = np.flatnonzero(places >= 0)
    squares: list[tuple[str, Square]] = []
    for name, layer, inspection in zip((ends[0], ends[-1]), (before, after), series.ends, strict=True):
        probabilities = layer.probabilities(change.head)[at]
        selected = next(
            one.selected[at] for one in inspection.heads if (one.layer, one.head) == (change.layer, change.head)
        )
        square = attention_square(names, places, probabilities, layer.allowed[at], selected)
        if square.fits:
            squares.append((name, square))
    if squares:
        cell = min(LARGEST_CELL, max(LEAST_CELL, HALF_PAGE / len(squares[-1][1].columns) - 0.07))
        marked = [int(np.searchsorted(queries, q)) for q in rows]
        yield SpecialPart("sides", {"squares": squares, "cell": cell, "marked": marked})
    lines = [
        tuple(f"{names[t]} ({t})" for t in (places[q], one, other))
        for q, one, other in zip(rows, change.before[here], change.after[here], strict=True)
    ][:MOST_LINES]
    if lines:
        some = f"The first {len(lines)} of {count} changed queries" if len(lines) < count else "Changed queries"
        table = Table(lines, ["query", ends[0], ends[-1]], kind="changed")
        yield Details(some, [table], open=not squares, kind="plain")


def _layers(inspection: Any, indices: list[int]) -> dict[int, "Layer"]:
    if inspection.source is None or not indices:
        return {}
    return dict(inspection.source.layers_at(indices))


def model_names(series: "Series") -> list[str]:
    """Short names of the models: the step of a checkpoint, or the last part of a path if the parts differ."""
    if series.steps is not None:
        return [f"step {step:,}" for step in series.steps]
    last = [Path(name).name for name in series.names]
    return last if len(set(last)) == len(last) and all(last) else series.names


def summary(series: "Series") -> str:
    """The model and the data, in one sentence."""
    first = series.inspections[0]
    some = f"{first.num_queries:,} {'sampled ' if first.sampled else ''}queries"
    return (
        f"{first.model} ({first.family}): {len(series.total.heads)} heads on the same {first.num_sequences:,} sequences"
        f" with {first.num_tokens:,} tokens in total, {some}"
    )


def verdict(series: "Series") -> str:
    """How many heads changed their selection, and where the margin moved."""
    heads = series.total.heads
    changed = [one for one in heads if one.changed > 0]
    if not changed:
        found = f"All {len(heads)} attention heads select the same tokens."
    else:
        top = changed[0]
        found = (
            f"{len(changed)} of {len(heads)} attention heads changed selections. Head {_label(series, top)} changed "
            "most: for"
            f" {percent(top.changed)} of its queries."
        )
    found = f"{found} {cause(heads)}".rstrip()
    known = [one for one in heads if one.margin is not None]
    if not known:
        return found
    grown = sum(_grew(one) for one in series.moved)
    fallen = len(series.moved) - grown
    return (
        f"{found} The margin ratio, the margin divided by the best margin for the same norm, certainly grew in "
        f"{grown} of"
        f" {len(known)} heads and fell in {fallen}."
    )


def cause(heads: "list[HeadChange]") -> str:
    """Which heads have other weights, and which only other input; empty if it is not known."""
    if any(one.weights is None for one in heads):
        return ""
    own = [one for one in heads if one.own_weights]
    if not own:
        return "No key or query weights differ."
    names = f" ({listed([f'{one.layer}.{one.head}' for one in own])})" if len(own) <= SHOWN else ""
    rest = sum(one.changed > 0 and not one.own_weights for one in heads)
    found = f"The key or query weights of {counted(len(own), 'head')}{names} differ"
    return (
        f"{found}; {counted(rest, 'head')} with equal weights changed selections because their input changed."
        if rest
        else f"{found}."
    )


def changed_heads(series: "Series") -> "list[HeadChange]":
    """The heads of the tables: those that select other tokens."""
    return [one for one in series.total.heads if percent(one.changed) != percent(0)]


def left_out(series: "Series") -> str:
    """How many heads the tables leave out; empty if there are none."""
    same = len(series.total.heads) - len(changed_heads(series))
    return f"{counted(same, 'head')} that select the same tokens are left out." if same else ""


def _label(series: "Series", change: "HeadChange") -> str:
    """The head of a change, with the name of its layer where the models have several kinds."""
    return head_label(series.inspections[0].layer_names, change.layer, change.head)


def _grew(change: "HeadChange") -> bool:
    assert change.margin is not None
    (_, high), (low, _) = change.margin
    return low > high


def notes(series: "Series") -> list[str]:
    """Return the warnings shown above the results."""
    first = series.inspections[0]
    found = kinds_of_layers(first.layer_names)
    if first.sampled:
        found.append(f"Only {first.num_queries:,} queries are compared, drawn with seed {first.seed}.")
    for name, one in zip(model_names(series), series.inspections, strict=True):
        error = largest_error(one)
        if error is not None and error > REBUILT:
            found.append(f"{name}: the attention of the model differs by up to {error:.1e} from that computed from W.")
        if one.model != first.model:
            found.append(f"{name} is a {one.model}. Heads are compared by layer and number, which may not correspond.")
    least, most = (edge(len(one.heads) for one in series.inspections) for edge in (min, max))
    if least != most:
        found.append(
            f"The models have {least} to {most} attention heads. Only heads that both the first and the last "
            "model have are compared."
        )
    return found


def interval(ends: tuple[float, float]) -> str:
    """The two ends of a margin ratio."""
    return f"{ends[0]:z.3g} to {ends[1]:z.3g}"


def change_rows(series: "Series") -> Table:
    """A row for each head that changed, those that changed most first."""
    before, after = model_names(series)[0], model_names(series)[-1]
    columns = ["head", "Selections changed (%)"]
    for title in MEASURES.values():
        columns += [f"{title}, {before}", after]
    margins = any(one.margin for one in series.total.heads)
    columns += [f"Margin over the best, {before}", after, "moved"] if margins else []
    weights = any(one.weights for one in series.total.heads)
    columns += ["‖ΔW‖/‖W‖", "of the keys", "of the queries"] if weights else []
    rows = []
    for one in changed_heads(series):
        row = [_label(series, one), f"{100 * one.changed:.1f}"]
        for name in MEASURES:
            row += [short(value) for value in one.numbers[name]] if name in one.numbers else ["-", "-"]
        if margins:
            row += ["-", "-", "-"] if one.margin is None else [*map(interval, one.margin), _moved(one)]
        if weights:
            row += ["-", "-", "-"] if one.weights is None else [short(change) for change in one.weights]
        rows.append(row)
    return Table(rows, columns, kind="heads")


def short_rows(series: "Series") -> Table:
    """As :func:`change_rows`, with the first and the last model in one column, for the terminal."""
    margins = any(one.margin for one in series.total.heads)
    weights = any(one.weights for one in series.total.heads)
    rows = []
    for one in changed_heads(series):
        row = [f"{one.layer}.{one.head}", percent(one.changed)]
        if weights:
            row.append("-" if one.weights is None else short(one.weights.product))
        row += [_arrow(*one.numbers[name]) if name in one.numbers else "-" for name in MEASURES]
        if margins:
            row += ["-", "-"] if one.margin is None else [_arrow(*(high for _, high in one.margin)), _moved(one)]
        rows.append(row)
    columns = ["head", "changed", *(["‖ΔW‖/‖W‖"] if weights else []), "largest p", "tokens"]
    columns += ["margin at most", "moved"] if margins else []
    return Table(rows, columns, more="heads")


def _arrow(before: float, after: float) -> str:
    return f"{short(before)} → {short(after)}"


def _moved(change: "HeadChange") -> str:
    return "not certain" if not change.margin_moved else "up" if _grew(change) else "down"


def _numbers(series: "Series", **about: Any) -> dict[str, Any]:
    first = series.inspections[0]
    return CompareResult.fill(
        first,
        **about,
        data=first,
        models=[
            ComparedModelFields.fill(
                one,
                name=name,
                step=None if series.steps is None else series.steps[k],
                rebuilt_error=largest_error(one),
                heads=[head_numbers(head) for head in one.heads],
            )
            for k, (name, one) in enumerate(zip(series.names, series.inspections, strict=True))
        ],
        changes=[
            HeadChangeFields.fill(
                one,
                since_first=series.since_first[one.layer, one.head],
                since_previous=series.since_previous[one.layer, one.head],
                margin_moved=None if one.margin is None else one.margin_moved,
            )
            for one in series.total.heads
        ],
    )
