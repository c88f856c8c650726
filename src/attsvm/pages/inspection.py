"""The page of ``attsvm inspect``: the heads by every measure, a table of the heads, and one head in detail."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm._utils.progress import counted
from attsvm._utils.text import head_label, layer_kinds
from attsvm.errors import ProblemError
from attsvm.pages.inspection_effects import effects_table, effects_words
from attsvm.pages.inspection_numbers import inspection_numbers, largest_error
from attsvm.pages.inspection_view import detail, interval_words, terminal_detail
from attsvm.pages.page import AnyPart, Details, Figures, Heading, Page, Shown, SpecialPart, Table, Text
from attsvm.pages.words import kinds_of_layers, layer_labels, listed, percent, short

if TYPE_CHECKING:
    from attsvm.inspect import FoundInspections, HeadGrid, HeadView, Inspection
    from attsvm.pages.folder import Write
    from attsvm.pages.inspection_figures import Known
    from attsvm.pretrained import Input

inspect = lazy_loader.load("attsvm.inspect", suppress_warning=True)
inspection_figures = lazy_loader.load("attsvm.pages.inspection_figures", suppress_warning=True)
pickers = lazy_loader.load("attsvm.pages.picker", suppress_warning=True)

SECONDS_A_PAGE = 5.0
"""Least time between two pages."""

SHARE_OF_PAGES = 0.33
"""Largest share of the time that is spent on pages."""

MOST_ROWS = 12
"""Heads whose effects are shown at once."""

REBUILT = 1e-5
"""The difference of attention probabilities above which a note warns."""


class InspectionPages:
    """The pages of an inspection, made again while margins are solved; what did not change is not drawn again.

    A state is "running" or "interrupted" if something is missing, and "" if the result is complete.

    ``given``: what is inspected. ``sentence``: the sequence that is shown for the head in detail. ``write``: of
    :func:`attsvm.pages.folder.claim_folder`; None if no page is written. ``start``: when the work began. ``waits``:
    whether the first page is written only after some seconds. ``about``: more arguments of :func:`inspection_numbers`.
    """

    def __init__(
        self, given: "Input", sentence: int, write: "Write | None", *, start: float, waits: bool, **about: Any
    ) -> None:
        self.tokens, self.words, self.sentence, self.decoder = given.tokens, given.words, sentence, given.decoder
        self.put, self.start, self.about = write, start, about
        self.next_page = time.monotonic() + (SECONDS_A_PAGE if waits else 0.0)
        self.latest: FoundInspections | None = None
        self._known: Known = {}
        self._drawn: list[Shown] = []
        self._grid: HeadGrid | None = None
        self._has_grid = True

    def keep(self, found: "FoundInspections") -> None:
        """Keep the latest result, and write it unless the last page is new."""
        self.latest = found
        if self.put is not None and time.monotonic() >= self.next_page:
            began = time.monotonic()
            self.write(found, "running")
            took = time.monotonic() - began
            self.next_page = began + took + max(SECONDS_A_PAGE, took / SHARE_OF_PAGES)

    def write(self, found: "FoundInspections", state: str = "") -> Page:
        """Make the page of what is found so far, and write it, its figures and the numbers."""
        page = self._page(found, state)
        if self.put is not None:
            self.put(page.write)
        return page

    def finished(self) -> str:
        """Say how many heads of the latest result are finished, such as "12 of 72 heads"."""
        return "" if self.latest is None else finished_words(self.latest)

    def _page(self, found: "FoundInspections", state: str) -> Page:
        seconds = time.perf_counter() - self.start
        result = inspection_numbers(found, seconds=seconds, interrupted=bool(state), **self.about)
        inspection, twin = found.done, found.twin
        given = Path(str(result["source"]["model"]))
        name = f"{inspection.model} in {given.resolve().name}" if given.is_dir() else given.name or inspection.model
        counts = f"{inspection.num_sequences:,} sequences, {inspection.num_queries:,} queries"
        return Page(
            result,
            title=f"The heads of {name}",
            kicker=summary(inspection),
            verdict=verdict(inspection, twin),
            body=partial(self._body, found, state),
            notes=[*([state_words(found, state)] if state else []), *notes(inspection, twin)],
            terminal=[*self._terminal(found)],
            made_by=f"{counts}; seed {inspection.seed}",
            kept=("the figures", "figures/"),
            reloads=state == "running",
        )

    def _body(self, found: "FoundInspections", state: str) -> Iterator[AnyPart]:
        inspection, tokens, sentence = found.done, self.tokens, self.sentence
        # after an interruption there is no time to draw: the page has the figures that were drawn before
        if state != "interrupted":
            self._drawn = inspection_figures.draw_inspection(inspection, found.twin, found.steps, self._known)
        if self._grid is None and self._has_grid:
            with contextlib.suppress(ProblemError):  # there may be too many pairs of a query and a token
                self._grid = inspect.HeadGrid.of(inspection, sentence, tokens, pickers.MORE_PAIRS, self.decoder)
            self._has_grid = self._grid is not None
        if self._grid is not None:  # the attention does not depend on the margins
            yield SpecialPart("picker", pickers.picker(replace(self._grid, inspection=inspection)))
        if inspection.detail is not None:
            keys, queries = self._seen(inspection.detail)
            yield from detail(found, inspection.detail, keys, sentence, self.words, queries)
        if found.effects is not None:
            table = effects_table(inspection, found.effects, self.words)
            yield Heading("What the heads do")
            yield Text(effects_words(found.effects), "")
            yield Table(table.rows[:MOST_ROWS], table.columns, kind="heads", words=2)
            if len(table.rows) > MOST_ROWS:
                yield Details(f"All {len(table.rows)} heads, by the cost of removing them", [table])
        yield Heading(f"Measures of {'every head' if self._drawn else 'the inspected heads'}")
        yield Figures(self._drawn)
        heads = _heads(inspection)
        count = "The inspected head" if len(heads.rows) == 1 else f"All {len(heads.rows)} heads"
        yield Details(count, [heads], open=not self._drawn)

    def _terminal(self, found: "FoundInspections") -> Iterator[Table | str]:
        yield summary(found.done)
        for name, one in (("", found.done), ("randomly initialised twin", found.twin)):
            if one is not None:
                columns, rows = layer_rows(one)
                yield Table(rows, columns, name)
        yield from glosses(found.done)
        if found.effects is not None:
            table = effects_table(found.done, found.effects, self.words)
            yield effects_words(found.effects)
            yield Table(table.rows[:MOST_ROWS], table.columns)
        if found.done.detail is not None:
            keys, queries = self._seen(found.done.detail)
            yield from terminal_detail(found, found.done.detail, keys, self.sentence, queries)

    def _seen(self, view: "HeadView") -> tuple[list[list[str]], list[list[str]]]:
        """The names of the keys and of the queries of a head; numbers where they are not those of the input."""
        n, _, T = view.allowed.shape
        fit = [
            rows for rows in (self.tokens, self.decoder or []) if len(rows) == n and all(len(row) == T for row in rows)
        ]
        keys = fit[0] if fit else [[f"#{k}" for k in range(T)]] * n
        crosses = keys is self.tokens and not view.is_self
        return keys, self.decoder if crosses and self.decoder is not None else keys


def _heads(inspection: "Inspection") -> Table:
    """A row for each head."""
    shown = [one for one in inspection.measures if one.name != "margin_ratio"]
    shown = [one for one in shown if not np.isnan(inspection.measure(one.name)).all()]
    names = inspection.layer_names
    several = len(layer_kinds(names)) > 1
    columns = ["head", *(["layer"] if several else []), *(one.title for one in shown)]
    solves = any(head.status != "finished" for head in inspection.heads)
    if solves:
        columns += ["Margin over the best", "Constraints", "Duplicates", "Support tokens"]
    rows = []
    for head in inspection.heads:
        values = [head.numbers.get(one.name) for one in shown]
        cells = [f"{head.layer}.{head.head}", *([names[head.layer]] if several else [])]
        cells += ["-" if value is None else short(value) for value in values]
        if head.margin is not None:
            cells.append(interval_words(head.margin))
            cells += [f"{count:,}" for count in (head.margin.constraints, head.margin.duplicates, head.margin.support)]
        elif solves:
            cells += ["not solved yet", "-", "-", "-"]
        rows.append(cells)
    return Table(rows, columns, kind="heads", words=1 + several)


def summary(inspection: "Inspection") -> str:
    """The model and the data, in two sentences."""
    layers, heads = len(inspection.layer_names), len(inspection.heads)
    inspected = "1 inspected head" if heads == 1 else f"{heads} heads"
    some = f"{inspection.num_queries:,} {'sampled ' if inspection.sampled else ''}queries"
    error = largest_error(inspection)
    agrees = "is not compared with the model's" if error is None else f"agrees with the model's to {error:.1e}"
    return (
        f"{inspection.model} ({inspection.family}): {layers} layers, {inspected}; {inspection.num_sequences:,}"
        f" sequences with {inspection.num_tokens:,} tokens in total, {some}. The attention computed from tokens and W"
        f" {agrees}."
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
            parts.append(words.format(_compared(percent(middle), twin, name)))
    middle = _median(inspection, "margin_ratio")
    if middle is not None and not inspection.interrupted:
        ratio = _compared(short(middle), twin, "margin_ratio")
        parts.append(f"has a margin ratio (its margin divided by the best margin for the same norm) of {ratio}")
    first = inspection.heads[0]
    subject = (
        "The median head"
        if len(inspection.heads) > 1
        else f"Head {head_label(inspection.layer_names, first.layer, first.head)}"
    )
    return f"{subject} {listed(parts)}." if parts else ""


def notes(inspection: "Inspection", twin: "Inspection | None" = None) -> list[str]:
    """Return the warnings shown above the results, and the named sets of heads."""
    found = [sets_words(inspection), *kinds_of_layers(inspection.layer_names), *group_words(inspection)]
    if inspection.rotary:
        found.append(
            "Queries and keys are not linear in the tokens, for example because of rotary positions. So each "
            "attention head has its own keys and queries, and W = I/√d_h is compared with the best d_h × d_h matrix."
        )
    if inspection.biased:
        found.append(
            "The logits have biases, for positions or (as in DeBERTa) for positions and tokens. They are part of W: "
            "tokens have one-hot positions as additional coordinates, and queries have their biases."
        )
    if inspection.sampled:
        found.append(f"Only {inspection.num_queries:,} queries are inspected, drawn with seed {inspection.seed}.")
    if not inspection.special_known:
        found.append("No special tokens are marked in the text, so attention to them is not reported.")
    error = largest_error(inspection)
    if error is not None and error > REBUILT:
        found.append(
            f"The attention of the model differs by up to {error:.1e} from that computed from tokens and W. The model "
            "may use a lower precision, or compute its attention in another way."
        )
    margins = [head.margin for head in inspection.heads if head.margin is not None]
    duplicates = sum(margin.duplicates for margin in margins)
    if duplicates:
        pairs = sum(margin.constraints for margin in margins)
        found.append(
            f"{duplicates:,} of {pairs:,} constraints are left out, because their token is an exact duplicate of the "
            "selected token."
        )
    infeasible = [f"{h.layer}.{h.head}" for h in inspection.heads if h.margin and h.margin.status == "infeasible"]
    if infeasible:
        found.append(f"The selection of {', '.join(infeasible)} is infeasible: no matrix W selects these tokens.")
    for of_twin, one in (("", inspection), (" of the randomly initialised copy", twin)):
        widths = [] if one is None else [head.margin.width for head in one.heads if head.margin is not None]
        wide = [width for width in widths if one is not None and width is not None and width > one.gap]
        if one is not None and wide:
            found.append(
                f"{len(wide)} intervals{of_twin} have a relative width above {one.gap:g}, up to {max(wide):.2g}."
            )
    return found


def group_words(inspection: "Inspection") -> list[str]:
    """The layers that the input does not run, and what the others see if it is not the same for all."""
    found, names = [], inspection.layer_names
    if inspection.not_run:
        kinds = layer_kinds(inspection.not_run)
        some = listed([f"{len(of_kind)} {kind}" for kind, of_kind in kinds.items()])
        found.append(f"The input does not run {counted(len(inspection.not_run), 'attention layer')}: {some}.")
    if len(inspection.groups) > 1:
        seen = (
            f"{listed([*layer_kinds([names[k] for k in group.layers])])}: {counted(group.num_sequences, 'sequence')}"
            f" with {counted(group.num_tokens, 'token')}"
            for group in inspection.groups
        )
        found.append(f"The layers do not see the same sequences: {'; '.join(seen)}.")
    return found


def glosses(inspection: "Inspection") -> list[str]:
    """Explain the columns whose names do not say what they mean."""
    explained = ("effective_tokens", "special_share", "first_share", "effective_rank", "margin_ratio")
    named = [one for one in inspection.measures if one.name in explained]
    return [
        f"{one.short}: {one.title}, {one.meaning}." for one in named if not np.isnan(inspection.measure(one.name)).all()
    ]


def finished_words(found: "FoundInspections") -> str:
    """How many heads are finished, such as "12 of 72 heads"."""
    words = _finished(found.done)
    if found.twin is not None:
        words += f", {_finished(found.twin)} of the randomly initialised copy"
    if found.steps:
        words += f", {counted(len(found.steps), 'checkpoint')}"
    return words


def _finished(inspection: "Inspection") -> str:
    finished, total = sum(head.status != "interrupted" for head in inspection.heads), len(inspection.heads)
    return f"{finished} of {counted(total, 'head')}"


def state_words(found: "FoundInspections", state: str) -> str:
    """Say what is missing while the inspection is "running", or because it was "interrupted"."""
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
    return f"Attention heads with at least half of their attention on one kind of token: {'; '.join(parts)}."


def _median(inspection: "Inspection", name: str) -> float | None:
    values = inspection.measure(name)
    return None if np.isnan(values).all() else float(np.nanmedian(values))


def _compared(text: str, twin: "Inspection | None", name: str) -> str:
    other = None if twin is None or twin.interrupted else _median(twin, name)
    if other is None:
        return text
    return f"{text} (untrained: {short(other) if name == 'margin_ratio' else percent(other)})"


def layer_rows(inspection: "Inspection") -> tuple[list[str], list[list[str]]]:
    """Names of columns, and a row for each layer: the median over its heads, and the range in parentheses."""
    defined = [one for one in inspection.measures if not np.isnan(inspection.measure(one.name)).all()]
    left_out = {"own_share", "previous_share", "duplicate_share", "induction_share"}
    left_out |= {"query_robustness", "key_robustness"}
    shown = [one for one in defined if one.name not in left_out]  # six columns fit into eighty characters
    rows, labels = [], layer_labels(inspection.layer_names)
    for layer in sorted({head.layer for head in inspection.heads}):
        row = [labels[layer]]
        for one in shown:
            values = inspection.measure(one.name)[layer]
            values = values[~np.isnan(values)]
            row.append(spread(values) if values.size else "-")
        rows.append(row)
    return ["layer", *(one.short for one in shown)], rows


def spread(values: np.ndarray) -> str:
    """The median, and the range in parentheses."""
    low, high = (_shorter(value) for value in (values.min(), values.max()))
    middle = short(float(np.median(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def _shorter(value: float) -> str:
    """One or two digits."""
    return f"{value:.0e}" if 0 < abs(value) < 1e-2 else f"{value:z.2g}"
