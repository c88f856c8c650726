"""The page of a fit: one self-contained file, figures inside, light and dark."""

from html import escape
from typing import Any

from attsvm.fit import Fit
from attsvm.report.figures import Drawn, weights_symbol
from attsvm.report.style import to_svg
from attsvm.report.words import notes, number, percent, separable_word, tables, verdict

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
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .92em; overflow-wrap: anywhere }
"""


def page(fit: Fit, result: dict[str, Any], drawn: list[Drawn], command: str) -> str:
    """The whole page as HTML.

    Parameters
    ----------
    fit : Fit
    result : dict
        Of :func:`attsvm.report.numbers`.
    drawn : list of Drawn
        The figures, in their order.
    command : str
        That was run; it stands under the figures.
    """
    data, training = result["data"], result["training"]
    title = _title(result)
    kicker = (
        f"{data['train']:,} training and {data['test']:,} test sequences of {_sizes(fit, data)}, d = {data['dim']}"
        f" · {training['attention']} attention {weights_symbol(fit)} · head {training['head']}"
        f" · {training['steps_done']:,} steps in {training['seconds']:.1f} s"
    )
    warnings = "".join(f'<p class="note">{escape(note)}</p>' for note in notes(fit, result))
    origin = f"Seed {result['seed']}; <code>{escape(command)}</code>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<p class="kicker">{escape(kicker)}</p>
<h1>{escape(title)}</h1>
<p class="verdict">{escape(verdict(fit, result))}</p>
{warnings}
<dl class="cards">{cards_element(_cards(fit, result))}</dl>
<h2>Figures</h2>
<div class="figures">{"".join(figure_element(one, origin) for one in drawn)}</div>
<h2>Numbers</h2>
<div class="tables">{"".join(table_element(*one) for one in tables(fit, result))}</div>
<footer>
<p><code>{escape(command)}</code></p>
<p>attsvm {escape(result["version"])} · seed {result["seed"]} · {result["seconds"]:.1f} s in all · data SHA-256
<code>{escape(data["sha256"])}</code> · all numbers in <code>result.json</code>, the run in <code>run.npz</code>.</p>
</footer>
</main>
</body>
</html>
"""


def _title(result: dict[str, Any]) -> str:
    classes = result["data"]["classes"]
    what = f"Digits {classes[0]} and {classes[1]}" if classes else result["data"]["source"].rsplit("/", 1)[-1]
    head = "attention and head trained together" if result["training"]["head"] == "trained" else "attention, fixed head"
    return f"{what}: {head}"


def _sizes(fit: Fit, data: dict[str, Any]) -> str:
    def count(number: int, what: str, most: bool) -> str:
        return f"{'up to ' * most}{number} {what}"

    tokens = count(data["tokens"], "token" if data["tokens"] == 1 else "tokens", fit.train.mask is not None)
    if data["queries"] is None:
        return tokens
    queries = count(data["queries"], "query" if data["queries"] == 1 else "queries", fit.train.query_mask is not None)
    return f"{tokens} and {queries}"


def _cards(fit: Fit, result: dict[str, Any]) -> list[tuple[str, str, str]]:
    accuracy, saturation, optimal = result["accuracy"], result["saturation"], result["optimal_tokens"]
    part = "train" if accuracy["test"] is None else "test"
    cards = [
        (
            "Test accuracy" if part == "test" else "Training accuracy",
            percent(accuracy[part]),
            f"mean token, logistic regression: {percent(accuracy['baseline_' + part])}",
        ),
        (
            "Median largest probability",
            number(saturation["median_largest_probability"]),
            "soft attention"
            if fit.soft
            else f"saturated; the lowest is {saturation['lowest_largest_probability']:.3g}",
        ),
        (
            "Optimal tokens",
            separable_word(optimal),
            f"{percent(result['selection']['share_optimal'])} of the queries select theirs",
        ),
    ]
    if result["direction_error"] is not None:
        errors = result["direction_error"]
        other = errors["relaxed"]
        against = f"against the {'plain ' if other else ''}Att-SVM of the trained selection"
        beside = f"; {number(other['final'])} against the relaxed one" if other else ""
        cards.append(("Direction error", number(errors["plain"]["final"]), against + beside))
    else:
        cards.append(("Direction error", "not named", "see the note above"))
    return cards


def cards_element(cards: list[tuple[str, str, str]]) -> str:
    """Name, value and small print of each of the page's leading numbers, as HTML."""
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><small>{escape(small)}</small></div>"
        for name, value, small in cards
    )


def figure_element(one: Drawn, origin: str) -> str:
    """A figure under its title, with its caption and where it came from (HTML)."""
    svg = to_svg(one.figure, one.name).replace("<svg", f'<svg role="img" aria-label="{escape(one.title)}"', 1)
    return (
        f"<figure><h3>{escape(one.title)}</h3>{svg}<figcaption>{escape(one.caption)}<br>{origin}</figcaption></figure>"
    )


def table_element(name: str, rows: list[tuple[str, str]]) -> str:
    """A table of names and values as HTML."""
    body = "".join(f'<tr><th scope="row">{escape(left)}</th><td>{escape(right)}</td></tr>' for left, right in rows)
    return f"<table><caption>{escape(name)}</caption>{body}</table>"
