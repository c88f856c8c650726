"""What an inspection says in words, for the terminal and the page."""

from typing import TYPE_CHECKING

import numpy as np

from attsvm.report.inspection.numbers import short

if TYPE_CHECKING:
    from attsvm.torch.inspection import HeadView, Inspection

REBUILT = 1e-5
"""A difference of attention probabilities from which the reader is warned."""


def summary(inspection: "Inspection") -> str:
    """One sentence on what was looked at."""
    layers, heads = len(inspection.layer_names), len(inspection.heads)
    some = (
        f"{inspection.num_queries:,} sampled queries" if inspection.sampled else f"{inspection.num_queries:,} queries"
    )
    error = max(head.rebuilt_error for head in inspection.heads)
    return (
        f"{inspection.model} ({inspection.family}): {layers} layers, {heads} heads, on {inspection.num_sequences:,}"
        f" sequences of {inspection.num_tokens:,} tokens in all, {some}. From tokens and W, attention is rebuilt to"
        f" {error:.1e}."
    )


def verdict(inspection: "Inspection", twin: "Inspection | None") -> str:
    """What the heads do, in the middle of them, beside the untrained twin."""
    told = []
    for name, words in (
        ("largest_probability", "gives its first choice {} of its attention"),
        ("special_share", "spends {} on special tokens"),
    ):
        middle = _median(inspection, name)
        if middle is not None:
            told.append(words.format(_against(_percent(middle), twin, name)))
    middle = _median(inspection, "margin_ratio")
    if middle is not None:
        told.append(f"keeps its selection by {_against(short(middle), twin, 'margin_ratio')} of the best margin")
    return f"The median head {', '.join(told)}." if told else ""


def notes(inspection: "Inspection", twin: "Inspection | None" = None) -> list[str]:
    """What a reader must know, or would take amiss."""
    found = []
    if inspection.rotary:
        found.append(
            "Positions are rotary: keys and queries are each head's own, rotated, and W is I/√d_h. The best matrix is"
            " then the best of size d_h × d_h."
        )
    if inspection.sampled:
        found.append(f"Only {inspection.num_queries:,} queries are looked at, drawn with seed {inspection.seed}.")
    if not inspection.special_known:
        found.append("No token is known to be special, so no share goes to special tokens.")
    error = max(head.rebuilt_error for head in inspection.heads)
    if error > REBUILT:
        found.append(
            f"The model's own attention differs from the rebuilt one by up to {error:.1e}: it computes in less"
            " precision, or does something else with its queries and keys."
        )
    margins = [head.margin for head in inspection.heads if head.margin is not None]
    duplicates = sum(margin.duplicates for margin in margins)
    if duplicates:
        pairs = sum(margin.constraints for margin in margins)
        found.append(
            f"{duplicates:,} of {pairs:,} constraints are left out: their token is the selected one's exact duplicate."
        )
    infeasible = [f"{h.layer}.{h.head}" for h in inspection.heads if h.margin and h.margin.status == "infeasible"]
    if infeasible:
        found.append(f"No matrix keeps the selection of {', '.join(infeasible)}.")
    for of_twin, one in (("", inspection), (" of the twin", twin)):
        widths = [] if one is None else [head.margin.width for head in one.heads if head.margin is not None]
        wide = [width for width in widths if one is not None and width is not None and width > one.gap]
        if one is not None and wide:
            found.append(f"{len(wide)} intervals{of_twin} are wider than {one.gap:g}, up to {max(wide):.2g}.")
    return found


def of_view(view: "HeadView") -> list[tuple[str, str]]:
    """Names and numbers of a head looked at closely."""
    interval = view.interval
    rows = [
        ("head", f"{view.layer}.{view.head}"),
        ("‖W‖ Frobenius, nuclear, spectral", f"{interval.norm:.4g}, {view.nuclear_norm:.4g}, {view.spectral_norm:.4g}"),
        ("margin of W / ‖W‖_F", "-" if interval.margin is None else short(interval.margin)),
    ]
    if interval.lower is not None and interval.upper is not None:
        rows.append(("margin over the best margin", f"{interval.lower:.4g} to {interval.upper:.4g}"))
    else:
        no_choice = interval.constraints == interval.duplicates
        rows.append(("margin over the best margin", "no constraints" if no_choice else str(interval.status)))
    rows.append(("constraints, exact duplicates left out", f"{interval.constraints:,}, {interval.duplicates:,}"))
    if view.support is not None:
        rows.append(("support tokens", f"{np.count_nonzero(view.support):,}"))
    return rows


def view_lines(view: "HeadView", tokens: list[str], sentence: int) -> list[tuple[str, str, str, str]]:
    """For each query of a sentence: itself, what it selects, how surely, and its support tokens."""
    lines = []
    for q, place in enumerate(view.positions[sentence]):
        if place < 0:
            continue
        selected = int(view.selected[sentence, q])
        support = [] if view.support is None else [tokens[t] for t in np.flatnonzero(view.support[sentence, q])]
        probability = f"{view.probabilities[sentence, q, selected]:.3f}"
        lines.append((tokens[place], tokens[selected], probability, " ".join(support)))
    return lines


def _median(inspection: "Inspection", name: str) -> float | None:
    values = inspection.measure(name)
    return None if np.isnan(values).all() else float(np.nanmedian(values))


def _against(told: str, twin: "Inspection | None", name: str) -> str:
    other = None if twin is None else _median(twin, name)
    if other is None:
        return told
    return f"{told} (untrained: {short(other) if name == 'margin_ratio' else _percent(other)})"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"
