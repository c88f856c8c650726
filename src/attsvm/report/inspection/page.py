"""The page of ``attsvm inspect``: a heat map of every measure, a table of the heads, and one head in detail."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.report.drawn import Shown
from attsvm.report.figure_data import file_links
from attsvm.report.inspection.figures import draw_inspection
from attsvm.report.inspection.origins import origins_of
from attsvm.report.inspection.picker import picker
from attsvm.report.inspection.words import (
    change_words,
    interval_words,
    notes,
    of_view,
    summary,
    triple_lines,
    verdict,
    view_lines,
)
from attsvm.report.render import render
from attsvm.report.squares import WIDEST, attention_square, square_table
from attsvm.report.words import short
from attsvm.report.write import write_page

if TYPE_CHECKING:
    from attsvm.torch.inspection import HeadView, Inspection


def write_inspection(
    folder: Path,
    inspection: "Inspection",
    twin: "Inspection | None",
    steps: "list[tuple[int, Inspection]]",
    result: dict[str, Any],
    tokens: list[list[str]],
    sentence: int,
) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    Parameters
    ----------
    folder : Path
        An existing folder, from :func:`attsvm.report.claim.claim_folder`.
    inspection, twin : Inspection
    steps : list of (int, Inspection)
        Of checkpoints.
    result : dict
        Of :func:`attsvm.report.inspection.numbers.inspection_numbers`.
    tokens : list of list of str
        The tokens of every sequence as text.
    sentence : int
        The sequence that is shown for the head in detail.
    """
    drawn = draw_inspection(inspection, twin, steps)
    write_page(folder, inspection_page(inspection, twin, result, drawn, tokens, sentence), drawn, result)


def inspection_page(
    inspection: "Inspection",
    twin: "Inspection | None",
    result: dict[str, Any],
    drawn: list[Shown],
    tokens: list[list[str]],
    sentence: int,
) -> str:
    """The whole page as HTML, from the arguments of :func:`write_inspection` and its figures."""
    name = Path(str(result["source"]["model"])).name or inspection.model
    return render(
        "inspection.html.j2",
        title=f"The heads of {name}",
        kicker=summary(inspection),
        verdict=verdict(inspection, twin),
        notes=notes(inspection, twin),
        view=None if inspection.view is None else _view(inspection.view, tokens, sentence),
        drawn=drawn,
        made_by=f"{inspection.num_sequences:,} sequences, {inspection.num_queries:,} queries; seed {inspection.seed}",
        heads=_heads(inspection),
        picker=picker(inspection, tokens, sentence),
        command=result["command"],
        result=result,
    )


def _heads(inspection: "Inspection") -> dict[str, Any]:
    """Names of columns, and a row for each head."""
    shown = [one for one in inspection.measures if one.name != "margin_ratio"]
    shown = [one for one in shown if not np.isnan(inspection.measure(one.name)).all()]
    columns = ["head", *(one.title for one in shown)]
    if any(head.margin is not None for head in inspection.heads):
        columns += ["Margin over the best", "Constraints", "Duplicates", "Support tokens"]
    rows = []
    for head in inspection.heads:
        values = [head.numbers.get(one.name) for one in shown]
        cells = [f"{head.layer}.{head.head}", *("-" if value is None else short(value) for value in values)]
        if head.margin is not None:
            cells.append(interval_words(head.margin))
            cells += [f"{count:,}" for count in (head.margin.constraints, head.margin.duplicates, head.margin.support)]
        rows.append(cells)
    return {"columns": columns, "rows": rows}


def _view(view: "HeadView", texts: list[list[str]], sentence: int) -> dict[str, Any]:
    """The details of one head on one sequence, and its reasons on all of them."""
    tokens = texts[sentence]
    support = None if view.support is None else view.support[sentence]
    positions, selected = view.positions[sentence], view.selected[sentence]
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
        "lines": view_lines(view, tokens, sentence),
        "triples": triple_lines(view, texts),
        "change": change_words(view, texts),
        "origins": origins_of(view),
    }
