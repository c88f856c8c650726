"""What every page shares: one self-contained HTML file, light and dark, and the elements it is made of."""

from collections.abc import Container, Iterable
from html import escape

from matplotlib.figure import Figure

from attsvm.report.fit.figures import Drawn
from attsvm.report.style import to_svg

STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1b1b1f; --soft: #5c5c66; --line: #e3e1da; --warn: #b84a00 }
@media (prefers-color-scheme: dark) { :root {
  --paper: #16171b; --card: #1e2026; --ink: #e9e8e4; --soft: #a3a3ad; --line: #33353d; --warn: #f0a05a } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 "Iowan Old Style", "Palatino Linotype", Palatino, "URW Palladio L", Georgia, serif }
main { max-width: 62rem; margin: 0 auto; padding: 3.2rem 1.4rem 4rem }
h1 { font-size: 2.1rem; line-height: 1.2; margin: 0 0 .5rem; font-weight: 600; letter-spacing: -.01em }
h2 { font-size: 1.25rem; margin: 3rem 0 1rem; font-weight: 600 }
p.verdict { font-size: 1.15rem; max-width: 44rem; margin: .4rem 0 0 }
p.note { border-left: 3px solid var(--warn); padding-left: .9rem; margin: 1.2rem 0 0; max-width: 44rem }
.kicker, .cards dt, th, figcaption, footer, code, .cards small {
  font-family: ui-sans-serif, system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif }
.kicker { color: var(--soft); font-size: .85rem; margin: 0 0 .6rem }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 1rem; margin: 2.2rem 0 0 }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.1rem }
.cards dt { color: var(--soft); font-size: .8rem }
.cards dd { margin: .15rem 0 0; font-size: 1.9rem; line-height: 1.2; font-variant-numeric: tabular-nums lining-nums }
.cards small { display: block; color: var(--soft); font-size: .8rem; line-height: 1.4; margin-top: .35rem }
.figures { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)) }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 1.1rem }
figure h3 { margin: 0 0 .8rem; font-size: 1.02rem; font-weight: 600 }
figure svg { display: block; width: 100%; height: auto }
figcaption { color: var(--soft); font-size: .8rem; line-height: 1.45; margin-top: .8rem }
.tables { display: grid; gap: 0 2.4rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)) }
table { border-collapse: collapse; width: 100%; font-size: .95rem; margin-bottom: 1.6rem }
caption { text-align: left; font-weight: 600; padding: 0 0 .4rem }
th, td { text-align: left; vertical-align: baseline; padding: .38rem 0; border-top: 1px solid var(--line) }
th { font-weight: 400; font-size: .83rem; color: var(--soft); padding-right: 1.2rem; width: 46% }
td { font-variant-numeric: tabular-nums lining-nums; overflow-wrap: anywhere }
footer { margin-top: 3rem; padding-top: 1.2rem; border-top: 1px solid var(--line);
  color: var(--soft); font-size: .8rem }
.wide { grid-column: 1 / -1 }
p.lead { max-width: 44rem; margin: 0 0 1.2rem }
.examples { display: grid; gap: 1.2rem; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)) }
.examples article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1rem 1.1rem }
.examples h3 { margin: 0 0 .5rem; font-size: .95rem; font-weight: 600 }
.examples h3 small { color: var(--soft); font-weight: 400 }
.examples p { margin: 0; font-size: .95rem; line-height: 1.75; color: var(--soft); overflow-wrap: anywhere }
.examples mark { color: var(--ink); border-radius: .2rem; padding: .08em .1em;
  background: rgb(230 159 0 / calc(.85 * var(--a))) }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .92em; overflow-wrap: anywhere }
"""

_WIDE = ' class="wide"'


def document(
    title: str, *, kicker: str, verdict: str, body: str, footer: str, notes: Iterable[str] = (), style: str = ""
) -> str:
    """A whole page as HTML.

    Parameters
    ----------
    title, kicker, verdict : str
        Heading, the line above it and the sentence below it, as text.
    body, footer : str
        HTML.
    notes : iterable of str
        What a reader must not overlook, as text.
    style : str
        CSS of this page alone.
    """
    told = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body>
<main>
<p class="kicker">{escape(kicker)}</p>
<h1>{escape(title)}</h1>
<p class="verdict">{escape(verdict)}</p>
{told}
{body}
<footer>
{footer}
</footer>
</main>
</body>
</html>
"""


def cards_element(cards: list[tuple[str, str, str]]) -> str:
    """Name, value and small print of each of the page's leading numbers, as HTML."""
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><small>{escape(small)}</small></div>"
        for name, value, small in cards
    )


def figures_element(drawn: Iterable[Drawn], command: str, *, made_by: str, wide: Container[str] = ()) -> str:
    """Figures under their titles, each with its caption and where it came from (HTML).

    Parameters
    ----------
    drawn : iterable of Drawn
    command : str
        That was run.
    made_by : str
        What to say before the command: the seed, the data.
    wide : container of str
        Names of the figures that take a row of their own.
    """
    return "".join(
        f"<figure{_WIDE if one.name in wide else ''}><h3>{escape(one.title)}</h3>"
        f"{svg_element(one.figure, one.name, one.title)}<figcaption>{escape(one.caption)}<br>{escape(made_by)}; "
        f"<code>{escape(command)}</code></figcaption></figure>"
        for one in drawn
    )


def svg_element(figure: Figure, name: str, title: str) -> str:
    """A drawing as SVG that screen readers know by its title."""
    return to_svg(figure, name).replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def table_element(name: str, rows: list[tuple[str, str]]) -> str:
    """A table of names and values as HTML."""
    body = "".join(f'<tr><th scope="row">{escape(left)}</th><td>{escape(right)}</td></tr>' for left, right in rows)
    return f"<table><caption>{escape(name)}</caption>{body}</table>"
