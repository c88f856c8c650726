"""The page of ``attsvm inspect``: the heads by every measure, a table of the heads, and one head in detail."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.pages.drawn import Shown
from attsvm.pages.figure_data import file_links
from attsvm.pages.inspection.figures import Known, draw_inspection
from attsvm.pages.inspection.origins import origins_of, tests_of
from attsvm.pages.inspection.picker import AttentionMaps, attention_maps, picker
from attsvm.pages.inspection.words import (
    change_words,
    interval_words,
    notes,
    of_view,
    state_words,
    summary,
    triple_lines,
    verdict,
    view_lines,
)
from attsvm.pages.render import render
from attsvm.pages.squares import WIDEST, attention_square, square_table
from attsvm.pages.words import percent, short
from attsvm.pages.write import page_files

if TYPE_CHECKING:
    from attsvm.inspect import Inspection
    from attsvm.inspect.saved_models import Found
    from attsvm.inspect.view import HeadView

Words = Callable[[list[int]], list[str]]


class InspectionFiles:
    """The files of an inspection, made again while margins are solved; what did not change is not made again.

    ``tokens``: the tokens of every sequence as text. ``sentence``: the sequence that is shown for the head in detail.
    ``words``: from numbers of tokens of the vocabulary to their names.
    """

    def __init__(self, tokens: list[list[str]], sentence: int, words: Words | None = None) -> None:
        self.tokens, self.sentence, self.words = tokens, sentence, words
        self._known: Known = {}
        self._drawn: list[Shown] = []
        self._maps: dict[int, AttentionMaps | None] = {}

    def of(self, found: "Found", result: dict[str, Any], state: str = "", *, draws: bool = True) -> dict[str, bytes]:
        """``index.html``, ``figures/*.png`` and ``result.json`` by their names.

        ``result``: of :func:`attsvm.pages.inspection.numbers.inspection_numbers`. ``state``: "running" or
        "interrupted" if something is missing. ``draws``: whether to draw figures. Otherwise the page has those that
        were drawn before.
        """
        if draws:
            self._drawn = draw_inspection(found.done, found.twin, found.steps, self._known)
        return page_files(self._page(found, result, state), self._drawn, result)

    def _page(self, found: "Found", result: dict[str, Any], state: str) -> str:
        inspection, twin = found.done, found.twin
        name = Path(str(result["source"]["model"])).name or inspection.model
        if not self._maps:
            self._maps[0] = attention_maps(inspection, self.tokens, self.sentence)
        maps = self._maps[0]
        counts = f"{inspection.num_sequences:,} sequences, {inspection.num_queries:,} queries"
        return render(
            "inspection.html.j2",
            title=f"The heads of {name}",
            kicker=summary(inspection),
            verdict=verdict(inspection, twin),
            notes=[*([state_words(found, state)] if state else []), *notes(inspection, twin)],
            reloads=state == "running",
            view=None if inspection.view is None else self._view(found, inspection.view),
            drawn=self._drawn,
            made_by=f"{counts}; seed {inspection.seed}",
            heads=_heads(inspection),
            picker=None if maps is None else picker(maps, inspection, self.tokens),
            command=result["command"],
            result=result,
        )

    def _view(self, found: "Found", view: "HeadView") -> dict[str, Any]:
        """The details of one head on one sequence, and its reasons on all of them."""
        texts, sentence = self.tokens, self.sentence
        tokens = texts[sentence]
        support = None if view.support is None else view.support[sentence]
        positions, selected = view.positions[sentence], view.selected[sentence]
        titles, lines = view_lines(view, tokens, sentence)
        columns, square = attention_square(
            tokens, positions, view.probabilities[sentence], view.allowed[sentence], selected, support
        )
        return {
            "name": f"{view.layer}.{view.head}",
            "rows": of_view(view)[1:],
            "sequence": sentence + 1,
            "columns": columns,
            "square": square if len(columns) <= WIDEST else [],
            "links": file_links(f"head-{view.layer}-{view.head}-sequence-{sentence + 1}", square_table(square)),
            "titles": titles,
            "lines": lines,
            "reasons": view.reasons,
            "triples": triple_lines(view, texts),
            "change": change_words(view, texts),
            "origins": origins_of(view),
            "tests": tests_of(found.tests),
            "directions": directions_of(view, texts, self.words),
        }


def _heads(inspection: "Inspection") -> dict[str, Any]:
    """Names of columns, and a row for each head."""
    shown = [one for one in inspection.measures if one.name != "margin_ratio"]
    shown = [one for one in shown if not np.isnan(inspection.measure(one.name)).all()]
    columns = ["head", *(one.title for one in shown)]
    solves = any(head.status != "finished" for head in inspection.heads)
    if solves:
        columns += ["Margin over the best", "Constraints", "Duplicates", "Support tokens"]
    rows = []
    for head in inspection.heads:
        values = [head.numbers.get(one.name) for one in shown]
        cells = [f"{head.layer}.{head.head}", *("-" if value is None else short(value) for value in values)]
        if head.margin is not None:
            cells.append(interval_words(head.margin))
            cells += [f"{count:,}" for count in (head.margin.constraints, head.margin.duplicates, head.margin.support)]
        elif solves:
            cells += ["not solved yet", "-", "-", "-"]
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def directions_of(view: "HeadView", texts: list[list[str]], words: Words | None) -> list[dict[str, Any]]:
    """For each direction its share of ‖W‖², and a row of words at both ends for queries, keys and the vocabulary.

    ``texts``: the tokens of every sequence. ``words``: from numbers of tokens of the vocabulary to their names.
    """

    def placed(places: Any) -> str:
        return " · ".join(texts[i][place] for i, place in places.tolist())

    found = []
    for number, one in enumerate(view.directions, 1):
        rows = [
            ("queries of the text", *map(placed, one.query_ends)),
            ("keys of the text", *map(placed, one.key_ends)),
        ]
        if words is not None and one.vocabulary_ends is not None:
            ends = (" · ".join(words(end.tolist())) for end in one.vocabulary_ends)
            rows.append(("keys of the vocabulary", *ends))
        found.append({"title": f"Direction {number}: {percent(one.share)} of ‖W‖²", "rows": rows})
    return found
