"""The page of ``attsvm reproduce``: claim, drawing, numbers and verdict of each figure."""

from collections.abc import Sequence
from typing import Any

from attsvm._version import __version__
from attsvm.report.render import render
from attsvm.report.words import listed
from attsvm.reproduce.figure import Standing
from attsvm.reproduce.run import Outcome

_LOOKS = {Standing.HOLDS: "holds", Standing.IN_PART: "part", Standing.FAILS: "fails"}


def page(outcomes: Sequence[Outcome], command: str) -> str:
    """The whole page as HTML, self-contained.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Either all quick or none.
    command : str
        The command that was run.
    """
    quick = any(outcome.quick for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    count = f"{len(outcomes)} figure{'s' * (len(outcomes) != 1)}"
    cards = [_card(outcome) for outcome in outcomes]
    papers = list(dict.fromkeys(str(outcome.figure.paper) for outcome in outcomes))
    return render(
        "reproduce.html.j2",
        package="attsvm.reproduce",
        title=f"Figures of the papers, measured again{' (quick run)' * quick}",
        kicker=f"attsvm {__version__} · {count}{' · quick sizes' * quick} · {seconds:.0f} s",
        verdict=verdict_of_all(outcomes),
        notes=["A quick run uses small sizes. Run without --quick to judge the claims."] if quick else [],
        cards=cards,
        papers=[(paper, [card for card in cards if card["paper"] == paper]) for paper in papers],
        command=command,
    )


def verdict_of_all(outcomes: Sequence[Outcome]) -> str:
    """How many claims hold, or of a quick run how many criteria are met, with the names of the others."""
    quick = any(outcome.quick for outcome in outcomes)
    one, many = ("criterion", "criteria") if quick else ("claim", "claims")
    holds = [outcome for outcome in outcomes if outcome.verdict.standing is Standing.HOLDS]
    others = [outcome for outcome in outcomes if outcome.verdict.standing is not Standing.HOLDS]
    if not others:
        is_met, are_met = ("is met", "are met") if quick else ("holds", "hold")
        if len(holds) == 1:
            sentence = f"The {one} {is_met}"
        else:
            sentence = f"{'Both' if len(holds) == 2 else f'All {len(holds)}'} {many} {are_met}"
    else:
        met = "met" if quick else "hold"
        sentence = f"{len(holds)} of {len(outcomes)} {many} {'are met' if quick else met}"
    parts = [sentence + (" at quick sizes" if quick else "")]
    for standing, words in (
        (Standing.IN_PART, "met in part" if quick else "holds in part"),
        (Standing.FAILS, "not met" if quick else "does not hold"),
    ):
        names = [outcome.figure.name for outcome in others if outcome.verdict.standing is standing]
        if names:
            parts.append(f"{words}: {listed(names)}")
    return "; ".join(parts) + "."


def _card(outcome: Outcome) -> dict[str, Any]:
    figure = outcome.figure
    reused = f", {outcome.reused} of {outcome.pieces} pieces from an earlier run" if outcome.reused else ""
    sizes = "; ".join(f"{name} = {value}" for name, value in outcome.sizes.items())
    return {
        "name": figure.name,
        "paper": str(figure.paper),
        "title": figure.title,
        "claim": figure.claim,
        "criterion": figure.criterion,
        "standing": outcome.standing,
        "look": _LOOKS[outcome.verdict.standing],
        "why": outcome.verdict.why,
        "rows": outcome.rows,
        "sizes": f"{'Quick sizes' if outcome.quick else 'Sizes'}: {sizes}; {outcome.seconds:.1f} s{reused}",
        "command": outcome.command,
        "drawing": outcome.drawing,
    }
