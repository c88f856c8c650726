"""The sentences and tables of a comparison, for the terminal and the page."""

from pathlib import Path
from typing import TYPE_CHECKING

from attsvm.pages.inspection.words import REBUILT
from attsvm.pages.words import listed, percent, short

if TYPE_CHECKING:
    from attsvm.inspect.comparison import HeadChange
    from attsvm.inspect.series import Series

SHOWN = 8
"""Most heads with other weights that a sentence names."""

MEASURES = {"largest_probability": "Largest probability", "effective_tokens": "Effective number of tokens"}
"""Measures of the table, each before and after."""


def model_names(series: "Series") -> list[str]:
    """Short names of the models: the step of a checkpoint, or the last part of a path if the parts differ.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from attsvm.pages.comparison.words import model_names
    >>> model_names(SimpleNamespace(steps=None, names=["runs/one", "runs/two"]))
    ['one', 'two']
    """
    if series.steps is not None:
        return [f"step {step:,}" for step in series.steps]
    last = [Path(name).name for name in series.names]
    return last if len(set(last)) == len(last) and all(last) else series.names


def heading(series: "Series") -> str:
    names = model_names(series)
    if len(names) == 2:
        return f"{names[0]} and {names[1]}"
    return f"{len(names)} {'checkpoints' if series.steps else 'models'}, from {names[0]} to {names[-1]}"


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
        found = f"All {len(heads)} heads select the same tokens."
    else:
        top = changed[0]
        found = (
            f"{len(changed)} of {len(heads)} heads changed selections. Head {top.layer}.{top.head} changed most: for"
            f" {percent(top.changed)} of its queries."
        )
    found = f"{found} {cause(heads)}".rstrip()
    known = [one for one in heads if one.margin is not None]
    if not known:
        return found
    grown = sum(_grew(one) for one in series.moved)
    fallen = len(series.moved) - grown
    return (
        f"{found} The margin ratio, the margin over the best of the same norm, certainly grew in {grown} of"
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
    found = f"The key or query weights of {_heads(len(own))}{names} differ"
    return (
        f"{found}; {_heads(rest)} with equal weights changed selections because of other input."
        if rest
        else f"{found}."
    )


def _heads(number: int) -> str:
    return f"{number} head{'' if number == 1 else 's'}"


def changed_heads(series: "Series") -> "list[HeadChange]":
    """The heads of the tables: those that select other tokens."""
    return [one for one in series.total.heads if percent(one.changed) != percent(0)]


def left_out(series: "Series") -> str:
    """How many heads the tables leave out; empty if there are none."""
    same = len(series.total.heads) - len(changed_heads(series))
    return f"{_heads(same)} that select the same tokens are left out." if same else ""


def _grew(change: "HeadChange") -> bool:
    assert change.margin is not None
    (_, high), (low, _) = change.margin
    return low > high


def notes(series: "Series") -> list[str]:
    """Return the warnings shown above the results."""
    found = []
    first = series.inspections[0]
    if first.sampled:
        found.append(f"Only {first.num_queries:,} queries are compared, drawn with seed {first.seed}.")
    for name, one in zip(model_names(series), series.inspections, strict=True):
        error = max(head.rebuilt_error for head in one.heads)
        if error > REBUILT:
            found.append(
                f"{name}: the attention of the model differs by up to {error:.1e} from the one computed from W."
            )
        if one.model != first.model:
            found.append(f"{name} is a {one.model}. Heads are compared by layer and number, which may not correspond.")
    least, most = (edge(len(one.heads) for one in series.inspections) for edge in (min, max))
    if least != most:
        found.append(f"The models have {least} to {most} heads. Those that the first and the last have are compared.")
    return found


def interval(ends: tuple[float, float]) -> str:
    """The two ends of a margin ratio."""
    return f"{ends[0]:.3g} to {ends[1]:.3g}"


def change_rows(series: "Series") -> tuple[list[str], list[list[str]]]:
    """Names of columns, and a row for each head, those that changed most first."""
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
        row = [f"{one.layer}.{one.head}", f"{100 * one.changed:.1f}"]
        for name in MEASURES:
            row += [short(value) for value in one.numbers[name]] if name in one.numbers else ["-", "-"]
        if margins:
            row += ["-", "-", "-"] if one.margin is None else [*map(interval, one.margin), _moved(one)]
        if weights:
            row += ["-", "-", "-"] if one.weights is None else [short(change) for change in one.weights]
        rows.append(row)
    return columns, rows


def short_rows(series: "Series") -> tuple[list[str], list[list[str]]]:
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
    return [*columns, *(["margin at most", "moved"] if margins else [])], rows


def _arrow(before: float, after: float) -> str:
    return f"{short(before)} → {short(after)}"


def _moved(change: "HeadChange") -> str:
    return "not certain" if not change.margin_moved else "up" if _grew(change) else "down"
