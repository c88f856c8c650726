"""The page of a fit: one self-contained file, figures inside, light and dark."""

from html import escape
from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.datasets import Source
from attsvm.report.document import cards_element, document, figures_element, table_element
from attsvm.report.fit.figures import Drawn, weights_symbol
from attsvm.report.fit.words import notes, number, percent, separable_word, tables, verdict


def page(fit: Fit, result: dict[str, Any], drawn: list[Drawn], command: str, source: Source | None = None) -> str:
    """The whole page as HTML.

    Parameters
    ----------
    fit : Fit
    result : dict
        Of :func:`attsvm.report.fit.numbers`.
    drawn : list of Drawn
        The figures, in their order.
    command : str
        That was run; it stands under the figures.
    source : Source, optional
        Where the data came from; the title begins with its title.
    """
    data, training = result["data"], result["training"]
    kicker = (
        f"{data['train']:,} training and {data['test']:,} test sequences of {_sizes(fit, data)}, d = {data['dim']}"
        f" · {training['attention']} attention {weights_symbol(fit)} · head {training['head']}"
        f" · {training['steps_done']:,} steps in {training['seconds']:.1f} s"
    )
    body = f"""<dl class="cards">{cards_element(_cards(fit, result))}</dl>
<h2>Figures</h2>
<div class="figures">{figures_element(drawn, command, made_by=f"Seed {result['seed']}")}</div>
<h2>Numbers</h2>
<div class="tables">{"".join(table_element(*one) for one in tables(fit, result))}</div>"""
    footer = f"""<p><code>{escape(command)}</code></p>
<p>attsvm {escape(result["version"])} · seed {result["seed"]} · {result["seconds"]:.1f} s in all · data SHA-256
<code>{escape(data["sha256"])}</code> · all numbers in <code>result.json</code>, the run in <code>run.npz</code>.</p>"""
    return document(
        _title(result, source),
        kicker=kicker,
        verdict=verdict(fit, result),
        notes=notes(fit, result),
        body=body,
        footer=footer,
    )


def _title(result: dict[str, Any], source: Source | None) -> str:
    what = result["data"]["source"] if source is None else source.title()
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
