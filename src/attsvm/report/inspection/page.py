"""The page of an inspection: heat maps of every measure, the heads in a table, and one head sentence by sentence."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.report.document import document, figures_element
from attsvm.report.fit.figures import Drawn
from attsvm.report.inspection.figures import draw_inspection
from attsvm.report.inspection.numbers import short
from attsvm.report.inspection.words import notes, of_view, summary, verdict, view_lines
from attsvm.report.plain import dumps
from attsvm.report.style import to_png

if TYPE_CHECKING:
    from attsvm.torch.inspection import HeadView, Inspection

WIDEST = 48
"""Tokens of a sentence up to which its attention is drawn as a square."""

HEADS_STYLE = """
.scroll { overflow-x: auto }
table.heads { font-family: ui-sans-serif, system-ui, "Segoe UI", Arial, sans-serif; font-size: .82rem }
table.heads th, table.heads td { width: auto; padding: .25rem .8rem .25rem 0; white-space: nowrap }
table.heads td { text-align: right } table.heads thead th { vertical-align: bottom; white-space: normal }
table.square { width: auto; border-collapse: separate; border-spacing: 1px; margin: 0 0 1rem;
  font: .72rem ui-sans-serif, system-ui, "Segoe UI", Arial, sans-serif }
table.square td { border: 0; padding: 0; width: 1.35rem; min-width: 1.35rem; height: 1.35rem; text-align: center;
  vertical-align: middle; line-height: 1; overflow-wrap: normal }
table.square th { border: 0; width: auto; padding: 0 .5rem 0 0; text-align: right; white-space: nowrap;
  font-size: .75rem; color: var(--ink); vertical-align: middle }
table.square thead th { height: 6.5rem; padding: 0; vertical-align: bottom; text-align: left }
table.square thead th span { writing-mode: vertical-rl; transform: rotate(180deg); display: inline-block;
  max-height: 6.3rem; overflow: hidden }
td.chosen { outline: 2px solid #D55E00; outline-offset: -2px }
td.shut { background: repeating-linear-gradient(45deg, var(--line) 0 1px, transparent 1px 4px) }
details { margin: 2.4rem 0 0 } summary { cursor: pointer; font-weight: 600; font-size: 1.1rem }
table.lines th, table.lines td { width: auto; padding: .25rem 1.4rem .25rem 0; white-space: nowrap }
table.lines td:last-child { white-space: normal; width: 60% }
"""


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
        That exists, from :func:`attsvm.report.claim.claim_folder`.
    inspection, twin : Inspection
    steps : list of (int, Inspection)
        Of checkpoints.
    result : dict
        Of :func:`attsvm.report.inspection.numbers.inspection_numbers`.
    tokens : list of list of str
        What the tokens of every sequence are called.
    sentence : int
        Which one is shown of the head looked at closely.
    """
    drawn = draw_inspection(inspection, twin, steps)
    (folder / "figures").mkdir()
    for figure in drawn:
        (folder / "figures" / f"{figure.name}.png").write_bytes(to_png(figure.figure))
    html = inspection_page(inspection, twin, result, drawn, tokens, sentence)
    (folder / "index.html").write_text(html, encoding="utf-8")
    (folder / "result.json").write_text(dumps(result) + "\n", encoding="utf-8")


def inspection_page(
    inspection: "Inspection",
    twin: "Inspection | None",
    result: dict[str, Any],
    drawn: list[Drawn],
    tokens: list[list[str]],
    sentence: int,
) -> str:
    """The whole page as HTML, self-contained."""
    name = Path(str(result["source"]["model"])).name or inspection.model
    made_by = f"{inspection.num_sequences:,} sequences, {inspection.num_queries:,} queries; seed {inspection.seed}"
    view = "" if inspection.view is None else _view(inspection.view, tokens[sentence], sentence)
    body = f"""{view}
<h2>Measures of every head</h2>
<div class="figures">{figures_element(drawn, result["command"], made_by=made_by)}</div>
{_heads(inspection)}"""
    footer = f"""<p><code>{escape(result["command"])}</code></p>
<p>attsvm {escape(result["version"])} · seed {result["seed"]} · {result["seconds"]:.1f} s in all · all numbers in
<code>result.json</code>, the figures in <code>figures/</code>.</p>"""
    return document(
        f"The heads of {name}",
        kicker=summary(inspection),
        verdict=verdict(inspection, twin),
        notes=notes(inspection, twin),
        body=body,
        footer=footer,
        style=HEADS_STYLE,
    )


def _heads(inspection: "Inspection") -> str:
    shown = [one for one in inspection.measures if one.name != "margin_ratio"]
    shown = [one for one in shown if not np.isnan(inspection.measure(one.name)).all()]
    margins = any(head.margin is not None for head in inspection.heads)
    titles = ["head", *(one.title for one in shown)]
    titles += ["Margin over the best", "Constraints", "Duplicates", "Support tokens"] * margins
    rows = []
    for head in inspection.heads:
        cells = [f"{head.layer}.{head.head}"]
        values = [head.numbers.get(one.name) for one in shown]
        cells += ["-" if value is None else short(value) for value in values]
        if head.margin is not None:
            interval = head.margin
            known = interval.lower is not None and interval.upper is not None
            cells.append(f"{interval.lower:.4g} to {interval.upper:.4g}" if known else str(interval.status))
            cells += [f"{count:,}" for count in (interval.constraints, interval.duplicates, interval.support)]
        rows.append("<tr><th scope='row'>" + "</th><td>".join((cells[0], "</td><td>".join(cells[1:]))) + "</td></tr>")
    head_row = "".join(f"<th scope='col'>{escape(title)}</th>" for title in titles)
    return (
        f"<details><summary>All {len(inspection.heads)} heads</summary><div class='scroll'><table class='heads'>"
        f"<thead><tr>{head_row}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _view(view: "HeadView", tokens: list[str], sentence: int) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(left)}</th><td>{escape(right)}</td></tr>' for left, right in of_view(view)[1:]
    )
    lines = view_lines(view, tokens, sentence)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    present = np.flatnonzero(view.allowed[sentence].any(axis=0))
    square = _square(view, tokens, sentence, present) if len(present) <= WIDEST else ""
    return f"""<h2>Head {view.layer}.{view.head}</h2>
<div class="tables"><table>{rows}</table></div>
<h3>Sequence {sentence + 1}</h3>
{square}
<div class="scroll"><table class="lines"><thead><tr><th>query</th><th>selects</th><th>probability</th>
<th>support tokens</th></tr></thead><tbody>{body}</tbody></table></div>
"""


def _square(view: "HeadView", tokens: list[str], sentence: int, present: np.ndarray) -> str:
    """Attention of one sequence: a row for each query, a column for each token."""
    columns = "".join(f"<th scope='col'><span>{escape(tokens[t])}</span></th>" for t in present)
    rows = []
    for q, place in enumerate(view.positions[sentence]):
        if place < 0:
            continue
        cells = []
        for t in present:
            if not view.allowed[sentence, q, t]:
                cells.append("<td class='shut'></td>")
                continue
            probability = view.probabilities[sentence, q, t]
            chosen = " class='chosen'" if t == view.selected[sentence, q] else ""
            supports = view.support is not None and view.support[sentence, q, t]
            dark = "#fff" if probability > 0.45 else "var(--ink)"
            cells.append(
                f"<td{chosen} title='{escape(tokens[place], quote=True)} → {escape(tokens[t], quote=True)}:"
                f" {probability:.3f}' style='background: color-mix(in srgb, #0072B2 {100 * probability:.1f}%,"
                f" var(--card)); color: {dark}'>{'•' if supports else ''}</td>"
            )
        rows.append(f"<tr><th scope='row'>{escape(tokens[place])}</th>{''.join(cells)}</tr>")
    return (
        "<p>A row for each query: the bluer, the more attention; framed, the token it selects; dotted, its support"
        " tokens; hatched, what it may not attend to.</p><div class='scroll'><table class='square'>"
        f"<thead><tr><th></th>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
