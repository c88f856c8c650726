"""The page of ``attsvm compare``: which heads changed their selection, with their attention side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attsvm.pages.comparison.figures import draw_comparison
from attsvm.pages.comparison.pictures import changed_heads
from attsvm.pages.comparison.words import change_rows, heading, left_out, notes, summary, verdict
from attsvm.pages.drawn import Shown
from attsvm.pages.render import render
from attsvm.pages.write import write_page

if TYPE_CHECKING:
    from attsvm.inspect.series import Series


def write_comparison(
    folder: Path, series: "Series", result: dict[str, Any], tokens: list[list[str]], sentence: int | None
) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.comparison.numbers.comparison_numbers`. ``tokens``: the tokens of every sequence as text.
    ``sentence``: the sequence whose attention is drawn, counted from 0.
    """
    drawn = draw_comparison(series)
    write_page(folder, comparison_page(series, result, drawn, tokens, sentence), drawn, result)


def comparison_page(
    series: "Series", result: dict[str, Any], drawn: list[Shown], tokens: list[list[str]], sentence: int | None
) -> str:
    """The whole page as HTML, from the arguments of :func:`write_comparison` and its figures."""
    columns, rows = change_rows(series)
    first = series.inspections[0]
    heads = changed_heads(series, tokens, sentence)
    entries = [
        {"name": "figures", "title": "Measures"},
        *({"name": f"head-{one['name']}", "title": f"Head {one['name']}"} for one in heads),
        *([{"name": "all-heads", "title": "All changed heads"}] if rows else []),
    ]
    return render(
        "comparison.html.j2",
        title=heading(series),
        kicker=summary(series),
        verdict=verdict(series),
        notes=notes(series),
        heads=heads,
        drawn=drawn,
        entries=entries,
        made_by=f"{first.num_sequences:,} sequences, {first.num_queries:,} queries; seed {first.seed}",
        columns=columns,
        rows=rows,
        left_out=left_out(series),
        command=result["command"],
        result=result,
    )
