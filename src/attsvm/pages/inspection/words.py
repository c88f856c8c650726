"""The sentences and tables of an inspection, for the terminal and the page."""

from typing import TYPE_CHECKING

import numpy as np

from attsvm.pages.words import listed, percent, short

if TYPE_CHECKING:
    from attsvm.inspect import Inspection
    from attsvm.inspect.saved_models import Found
    from attsvm.inspect.view import HeadView
    from attsvm.svm.margin_interval import MarginInterval

REBUILT = 1e-5
"""The difference of attention probabilities above which a note warns."""


def summary(inspection: "Inspection") -> str:
    """The model and the data, in two sentences."""
    layers, heads = len(inspection.layer_names), len(inspection.heads)
    inspected = "1 inspected head" if heads == 1 else f"{heads} heads"
    some = (
        f"{inspection.num_queries:,} sampled queries" if inspection.sampled else f"{inspection.num_queries:,} queries"
    )
    error = max(head.rebuilt_error for head in inspection.heads)
    return (
        f"{inspection.model} ({inspection.family}): {layers} layers, {inspected}; {inspection.num_sequences:,}"
        f" sequences with {inspection.num_tokens:,} tokens in total, {some}. The attention computed from tokens and W"
        f" agrees with the model's to {error:.1e}."
    )


def verdict(inspection: "Inspection", twin: "Inspection | None") -> str:
    """The median of each measure over the heads, compared with the randomly initialised copy."""
    parts = []
    for name, words in (
        ("largest_probability", "gives {} of its attention to the selected token"),
        ("special_share", "gives {} to special tokens"),
    ):
        middle = _median(inspection, name)
        if middle is not None:
            parts.append(words.format(_against(percent(middle), twin, name)))
    middle = _median(inspection, "margin_ratio")
    if middle is not None and not inspection.interrupted:
        ratio = _against(short(middle), twin, "margin_ratio")
        parts.append(f"has a margin ratio, its margin over the best of the same norm, of {ratio}")
    first = inspection.heads[0]
    subject = "The median head" if len(inspection.heads) > 1 else f"Head {first.layer}.{first.head}"
    return f"{subject} {listed(parts)}." if parts else ""


def notes(inspection: "Inspection", twin: "Inspection | None" = None) -> list[str]:
    """Return the warnings shown above the results, and the named sets of heads."""
    found = [sets_words(inspection)]
    if inspection.rotary:
        found.append(
            "Positions are rotary: each head has its own rotated keys and queries, and W is I/√d_h. It is compared with"
            " the best matrix of size d_h × d_h."
        )
    if inspection.biased:
        found.append(
            "The logits have biases of positions. They are a part of W: the tokens have one-hot positions as additional"
            " coordinates, and the queries have their biases."
        )
    if inspection.sampled:
        found.append(f"Only {inspection.num_queries:,} queries are inspected, drawn with seed {inspection.seed}.")
    if not inspection.special_known:
        found.append("The special tokens are not known, so the attention to them is not reported.")
    error = max(head.rebuilt_error for head in inspection.heads)
    if error > REBUILT:
        found.append(
            f"The attention of the model differs by up to {error:.1e} from the one computed from tokens and W. The "
            "model may use a lower precision, or treat its queries and keys in another way."
        )
    margins = [head.margin for head in inspection.heads if head.margin is not None]
    duplicates = sum(margin.duplicates for margin in margins)
    if duplicates:
        pairs = sum(margin.constraints for margin in margins)
        found.append(
            f"{duplicates:,} of {pairs:,} constraints are left out because their token is an exact duplicate of the "
            "selected one."
        )
    infeasible = [f"{h.layer}.{h.head}" for h in inspection.heads if h.margin and h.margin.status == "infeasible"]
    if infeasible:
        found.append(f"The selection of {', '.join(infeasible)} is infeasible: no matrix W gives it.")
    for of_twin, one in (("", inspection), (" of the randomly initialised copy", twin)):
        widths = [] if one is None else [head.margin.width for head in one.heads if head.margin is not None]
        wide = [width for width in widths if one is not None and width is not None and width > one.gap]
        if one is not None and wide:
            found.append(
                f"{len(wide)} intervals{of_twin} have a relative width above {one.gap:g}, up to {max(wide):.2g}."
            )
    return found


def glosses(inspection: "Inspection") -> list[str]:
    """What the columns mean whose names do not say it."""
    named = [one for one in inspection.measures if one.name in ("effective_rank", "margin_ratio")]
    return [
        f"{one.short}: {one.title}, {one.meaning}." for one in named if not np.isnan(inspection.measure(one.name)).all()
    ]


def finished_words(found: "Found") -> str:
    """How many heads are finished, such as "12 of 72 heads"."""
    words = _finished(found.done)
    if found.twin is not None:
        words += f", {_finished(found.twin)} of the randomly initialised copy"
    if found.steps:
        words += f", {len(found.steps)} checkpoint{'s' if len(found.steps) > 1 else ''}"
    return words


def _finished(inspection: "Inspection") -> str:
    finished, total = sum(head.status != "interrupted" for head in inspection.heads), len(inspection.heads)
    return f"{finished} of {total} head{'s' if total > 1 else ''}"


def state_words(found: "Found", state: str) -> str:
    """What is missing while the inspection is "running", or because it was "interrupted"."""
    begins = {"running": "The command is still running", "interrupted": "The command was interrupted"}[state]
    said = f"{begins}: {finished_words(found)} are complete."
    if any(one is not None and one.interrupted for one in (found.done, found.twin)):
        said += " The margins of the others are not solved yet."
    reloads = " This page loads again every few seconds, until you click or press a key."
    return said + reloads * (state == "running")


def sets_words(inspection: "Inspection") -> str:
    """The named sets of heads, as a sentence."""
    parts = []
    for name, heads in inspection.sets().items():
        some = f"{len(heads)} heads" if len(heads) > 8 else ", ".join(f"{layer}.{head}" for layer, head in heads)
        parts.append(f"{name}: {some}")
    return f"Heads with at least half of their attention on one kind of token: {'; '.join(parts)}."


def interval_words(interval: "MarginInterval") -> str:
    """The interval of a margin ratio, or why there is none."""
    if interval.lower is not None and interval.upper is not None:
        return f"{interval.lower:.4g} to {interval.upper:.4g}"
    return "no constraints" if interval.constraints == interval.duplicates else str(interval.status)


def of_view(view: "HeadView") -> list[tuple[str, str]]:
    """Names and numbers of the head in detail."""
    interval = view.interval
    rows = [
        ("head", f"{view.layer}.{view.head}"),
        ("‖W‖ Frobenius, nuclear, spectral", f"{view.norm:.4g}, {view.nuclear_norm:.4g}, {view.spectral_norm:.4g}"),
    ]
    if interval is not None:
        rows.append(("margin ratio (margin over the best of its norm)", interval_words(interval)))
        rows.append(("constraints, exact duplicates left out", f"{interval.constraints:,}, {interval.duplicates:,}"))
    if view.support is not None:
        rows.append(("support tokens", f"{np.count_nonzero(view.support):,}"))
    reasons = view.reasons
    if reasons is not None:
        rows.append(("cos(W, W_svm)", f"{reasons.cosine:.3f}"))
        rows.append(("support among the tightest rows of W", f"{reasons.overlap:.3f} (chance {reasons.chance:.3f})"))
        rows.append(("smallest change that alters a selection, of ‖W‖_F", short(reasons.change.relative)))
    if view.factor_change is not None:
        change = view.factor_change
        rows.append(("smallest change of the key and query weights", f"{short(change.lower)} to {short(change.upper)}"))
    return rows


def triple_lines(view: "HeadView", tokens: list[list[str]], most: int = 12) -> list[tuple[str, str, str, str, str]]:
    """The triples with the largest multipliers: sequence, query, selected token, token that it is kept above, share.

    The tokens have their positions, counted from 1, because a token can occur several times.
    """
    if view.reasons is None:
        return []
    lines = []
    for (i, q, t), share in zip(view.reasons.triples[:most].tolist(), view.reasons.shares[:most], strict=True):
        places = (int(view.positions[i, q]), int(view.selected[i, q]), t)
        query, chosen, dropped = (_placed(tokens[i], place) for place in places)
        lines.append((str(i + 1), query, chosen, dropped, f"{share:.2%}"))
    return lines


def change_words(view: "HeadView", tokens: list[list[str]]) -> str:
    """The smallest change of W, as a sentence; empty if there is none."""
    if view.reasons is None:
        return ""
    change = view.reasons.change
    names = tokens[change.sequence]
    at = change.sequence, change.query
    query, chosen = (_placed(names, int(places[at])) for places in (view.positions, view.selected))
    return (
        f"The smallest change of W that alters a selection has Frobenius norm {short(change.norm)},"
        f" {short(change.relative)} of ‖W‖_F. With it the query {query} of sequence {change.sequence + 1} selects"
        f" {_placed(names, change.token)} instead of {chosen}."
    )


def view_lines(view: "HeadView", tokens: list[str], sentence: int) -> tuple[list[str], list[list[str]]]:
    """For each query of a sequence: its token, the selected token, its probability, and the support tokens if known."""
    lines = []
    for q, place in enumerate(view.positions[sentence]):
        if place < 0:
            continue
        selected = int(view.selected[sentence, q])
        line = [tokens[place], tokens[selected], f"{view.probabilities[sentence, q, selected]:.3f}"]
        if view.support is not None:
            line.append(" ".join(tokens[t] for t in np.flatnonzero(view.support[sentence, q])))
        lines.append(line)
    return ["query", "selects", "probability", *(["support tokens"] if view.support is not None else [])], lines


def _placed(names: list[str], place: int) -> str:
    return f"{names[place]} ({place + 1})"


def _median(inspection: "Inspection", name: str) -> float | None:
    values = inspection.measure(name)
    return None if np.isnan(values).all() else float(np.nanmedian(values))


def _against(text: str, twin: "Inspection | None", name: str) -> str:
    other = None if twin is None or twin.interrupted else _median(twin, name)
    if other is None:
        return text
    return f"{text} (untrained: {short(other) if name == 'margin_ratio' else percent(other)})"
