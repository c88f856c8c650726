"""The page of ``attsvm fit``."""

from pathlib import Path
from typing import Any

from attsvm._fit.result import Fit
from attsvm.datasets import Source
from attsvm.pages.drawn import Shown
from attsvm.pages.fit.figures import draw_all, weights_symbol
from attsvm.pages.fit.sequences import single_sequences
from attsvm.pages.fit.words import (
    about_comparison,
    accuracy_of,
    comparison_rows,
    hypothesis_word,
    notes,
    separable_word,
    tables,
    verdict,
)
from attsvm.pages.render import render
from attsvm.pages.words import number, percent, rate
from attsvm.pages.write import write_page


def page(fit: Fit, result: dict[str, Any], drawn: list[Shown], command: str, source: Source | None = None) -> str:
    """The whole page as HTML.

    ``result``: of :func:`attsvm.pages.fit.numbers`. ``drawn``: the figures, in their order. ``command``: the command
    that was run. ``source``: where the data came from; the title begins with its title.
    """
    data, training, theory = result["data"], result["training"], result["theory"]
    kicker = (
        f"{data['train']:,} training and {data['test']:,} test sequences of {_sizes(fit, data)}, d = {data['dim']}"
        f" · {training['attention']} attention {weights_symbol(fit)} · head {training['head']}"
        f" · {training['steps_done']:,} steps in {training['seconds']:.1f} s"
    )
    return render(
        "fit.html.j2",
        title=_title(result, source),
        kicker=kicker,
        verdict=verdict(fit, result),
        notes=list(notes(fit, result)),
        cards=_cards(fit, result),
        about_comparison=about_comparison(result["comparison"]) if result["comparison"] else "",
        comparison=comparison_rows(result["comparison"]) if result["comparison"] else [],
        theory=theory,
        hypotheses=[(one["statement"], hypothesis_word(one["holds"])) for one in theory["hypotheses"]]
        if theory
        else [],
        drawn=drawn,
        # where there are pictures, a figure shows them
        sequences=single_sequences(fit, data["classes"])
        if drawn and not any(one.name in ("picks", "pictures") for one in drawn)
        else None,
        made_by=f"Seed {result['seed']}",
        tables=list(tables(fit, result)),
        command=command,
        result=result,
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


def _interval(result: dict[str, Any], part: str) -> str:
    """The interval of an accuracy, before the small print that follows; empty for few sequences."""
    _, _, interval = accuracy_of(result, part).partition(" (")
    return f"95% interval {interval.rstrip(')')}; " if interval else ""


def _cards(fit: Fit, result: dict[str, Any]) -> list[tuple[str, str, str]]:
    accuracy, saturation, errors = result["accuracy"], result["saturation"], result["direction_error"]
    part = "train" if accuracy["test"] is None else "test"
    cards = [
        (
            "Test accuracy" if part == "test" else "Training accuracy",
            accuracy_of(result, part).split(" (")[0],
            f"{_interval(result, part)}mean token, logistic regression: {accuracy_of(result, 'baseline_' + part)}",
        ),
        (
            "Median largest probability",
            number(saturation["median_largest_probability"]),
            "not saturated" if fit.soft else f"saturated; the lowest is {saturation['lowest_largest_probability']:.3g}",
        ),
    ]
    right = result["selection"]["right"]
    if right is not None and part in right:
        share = rate(right[part], result["data"][part], right[f"{part}_interval"])
        value, _, interval = share.partition(" (")
        cards.insert(1, ("Right token selected", value, f"95% interval {interval.rstrip(')')}" if interval else ""))
    if errors is not None:
        optimal = f"{percent(result['selection']['share_optimal'])} of the queries select their optimal token"
        cards += [
            ("Optimal tokens", separable_word(result["optimal_tokens"]), optimal),
            ("Direction error", number(errors["final"]), "to the Att-SVM of the trained selection"),
        ]
    return cards


def write_folder(folder: Path, fit: Fit, result: dict[str, Any], command: str, source: Source | None = None) -> None:
    """Write ``index.html``, ``figures/*.png``, ``result.json`` and ``run.npz``.

    An interrupted fit gets no figures: drawing them takes longer than a user waits after Ctrl-C.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.fit.numbers`. ``command``: the command that was run. ``source``: where the data came from: it
    names the page, and its pictures are shown.
    """
    drawn = [] if result["interrupted"] else draw_all(fit, source)
    write_page(folder, page(fit, result, drawn, command, source), drawn, result)
    fit.run.save(folder / "run.npz")
