"""One page for all figures and tables: claim, figure, numbers and verdict of each."""

from collections.abc import Sequence
from html import escape

from attsvm._version import __version__
from attsvm.report.document import document, svg_element
from attsvm.reproduce.figure import Row, Standing
from attsvm.reproduce.run import Outcome

EXPERIMENT_STYLE = """
section { margin: 0 0 2.6rem }
.experiment { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.2rem 1.4rem;
  margin: 0 0 1.6rem; display: grid; gap: 1rem 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)) }
.experiment h3 { margin: 0 0 .5rem; font-size: 1.12rem; font-weight: 600 }
.experiment p { margin: .4rem 0; font-size: .95rem }
.experiment svg { display: block; width: 100%; height: auto }
.experiment table { margin: .8rem 0 0; font-size: .85rem }
.experiment small { color: var(--soft); font-family: ui-sans-serif, system-ui, "Segoe UI", Arial, sans-serif }
.verdict-word { display: inline-block; border-radius: 1rem; padding: .05rem .7rem; margin-right: .4rem;
  font-size: .8rem; font-family: ui-sans-serif, system-ui, "Segoe UI", Arial, sans-serif;
  border: 1px solid currentColor }
.holds { color: #00805c } .part { color: #a86b00 } .fails { color: #c0392b }
@media (prefers-color-scheme: dark) { .holds { color: #3fc79a } .part { color: #e8b04a } .fails { color: #ff8a75 } }
.summary td:nth-child(2) { white-space: nowrap }
"""

_CLASSES = {Standing.HOLDS: "holds", Standing.IN_PART: "part", Standing.FAILS: "fails"}


def page(outcomes: Sequence[Outcome], command: str) -> str:
    """The whole page as HTML, self-contained.

    Parameters
    ----------
    outcomes : sequence of Outcome
    command : str
        That was run.
    """
    told = ", ".join(
        f"{sum(o.standing == words for o in outcomes)} {words}" for words in {o.standing: 0 for o in outcomes}
    )
    seconds = sum(outcome.seconds for outcome in outcomes)
    papers = {str(outcome.figure.paper): 0 for outcome in outcomes}
    sections = "".join(
        f"<section><h2>{escape(paper)}</h2>"
        f"{''.join(_experiment(o) for o in outcomes if o.figure.paper == paper)}</section>"
        for paper in papers
    )
    return document(
        "The papers’ figures, measured anew",
        kicker=f"attsvm {__version__} · {len(outcomes)} figures and tables · {seconds:.0f} s",
        verdict=f"Of {len(outcomes)} claims: {told}.",
        body=sections,
        footer=f"""<p><code>{escape(command)}</code></p>
<p>The numbers of each are in <code>&lt;name&gt;.json</code>, the figures in <code>&lt;name&gt;.png</code> and
<code>.svg</code> beside this page.</p>""",
        style=EXPERIMENT_STYLE,
    )


def _experiment(outcome: Outcome) -> str:
    experiment, verdict = outcome.figure, outcome.verdict
    svg = svg_element(outcome.drawing, experiment.name, experiment.title)
    reused = f", {outcome.reused} of {outcome.pieces} pieces from an earlier run" if outcome.reused else ""
    sizes = "; ".join(f"{name} = {value}" for name, value in outcome.sizes.items())
    return f"""<article class="experiment" id="{experiment.name}">
<div><h3>{escape(experiment.title)}</h3>
<p>{escape(experiment.claim)}</p>
<p><span class="verdict-word {_CLASSES[verdict.standing]}">{outcome.standing}</span>{escape(verdict.why)}</p>
{_table(outcome.rows)}
<p><small>Criterion: {escape(experiment.criterion)}</small></p>
<p><small>{escape(sizes)}; {outcome.seconds:.1f} s{reused}</small></p>
<p><small><code>{outcome.command}</code></small></p></div>
<div>{svg}</div>
</article>"""


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    published = any(row.published for row in rows)
    head = "<tr><th></th><th>measured</th>" + ("<th>published</th>" if published else "") + "</tr>"
    body = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th><td>{escape(row.measured)}</td>'
        + (f"<td>{escape(row.published)}</td>" if published else "")
        + "</tr>"
        for row in rows
    )
    return f"<table>{head}{body}</table>"
