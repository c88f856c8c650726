"""The page of ``attsvm reproduce``: claim, drawing, numbers and verdict of each figure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from attsvm._utils.progress import counted
from attsvm._version import __version__
from attsvm.pages.figure import svg_element
from attsvm.pages.page import Page, Part
from attsvm.pages.schemas.papers import ReproduceResult
from attsvm.pages.words import listed
from attsvm.papers.figure import Standing
from attsvm.papers.run import Outcome
from attsvm.papers.sizes import SizeKind

_LOOKS = {Standing.HOLDS: "holds", Standing.IN_PART: "part", Standing.FAILS: "fails"}


_SIZES = {SizeKind.FULL: "Sizes", SizeKind.QUICK: "Quick sizes", SizeKind.OWN: "Own sizes"}
_TITLES = {SizeKind.FULL: "", SizeKind.QUICK: " (quick run)", SizeKind.OWN: " (own sizes)"}
_NOTES: dict[SizeKind, list[str]] = {
    SizeKind.FULL: [],
    SizeKind.QUICK: ["A quick run uses small sizes. Run without --quick to judge the claims."],
    SizeKind.OWN: ["These are not the sizes of the figures. Run without --size to judge the claims."],
}


@dataclass(frozen=True)
class Claim:
    """An outcome as the page and the terminal show it.

    Its drawing is text, so that a process can send it to another one.
    """

    outcome: Outcome  # without its drawing
    drawing: Markup  # an SVG element
    numbers: dict[str, Any]  # the outcome as JSON-able numbers

    @property
    def look(self) -> str:
        """The class of the verdict in the style sheet."""
        return _LOOKS[self.outcome.verdict.standing]

    @property
    def sizes(self) -> str:
        """The sizes, the seconds of the measurement, and what was read from files of an earlier run."""
        outcome = self.outcome
        reused = f", {outcome.reused} of {outcome.pieces} pieces from an earlier run" if outcome.reused else ""
        sizes = "; ".join(f"{name} = {value}" for name, value in outcome.sizes.items())
        return f"{_SIZES[outcome.kind]}: {sizes}; {outcome.seconds:.1f} s{reused}"


def shown(outcome: Outcome, command: str) -> Claim:
    """What the page shows of an outcome. ``command``: the command that was run."""
    figure = outcome.figure
    drawing = svg_element(outcome.drawing, figure.name, figure.title)
    return Claim(replace(outcome, drawing=Drawing()), drawing, ReproduceResult.fill(outcome, command=command))


def page(claims: Sequence[Claim], command: str) -> str:
    """The whole page as HTML, self-contained.

    ``claims``: all of one kind of sizes. ``command``: the command that was run.
    """
    kind = claims[0].outcome.kind
    sizes = "" if kind is SizeKind.FULL else f" · {_SIZES[kind].lower()}"
    seconds = sum(one.outcome.seconds for one in claims)
    papers: dict[str, list[Claim]] = {}
    for one in claims:
        papers.setdefault(str(one.outcome.figure.paper), []).append(one)
    result = Page(
        {"command": command},
        title=f"Figures of the papers, measured again{_TITLES[kind]}",
        kicker=f"attsvm {__version__} · {counted(len(claims), 'figure')}{sizes} · {seconds:.0f} s of measurements",
        verdict=verdict_of_all([one.outcome for one in claims]),
        body=lambda: [
            Part(
                "claims",
                {"summary": claims if len(claims) > 1 else [], "papers": list(papers.items())},
                [(one.outcome.figure.name, one.outcome.figure.title) for one in claims] if len(claims) > 1 else [],
            )
        ],
        notes=_NOTES[kind],
        footer="The numbers of each figure are in <name>.json and its drawing in <name>.png and .svg, in the folder of "
        "this page.",
    )
    return result.files()["index.html"].decode()


def verdict_of_all(outcomes: Sequence[Outcome]) -> str:
    """How many claims hold, or at other than the full sizes how many criteria are met, with the names of the others."""
    kind = outcomes[0].kind
    criteria_only = kind is not SizeKind.FULL
    one, many = ("criterion", "criteria") if criteria_only else ("claim", "claims")
    holds = [one for one in outcomes if one.verdict.standing is Standing.HOLDS]
    others = [one for one in outcomes if one.verdict.standing is not Standing.HOLDS]
    if not others:
        is_met, are_met = ("is met", "are met") if criteria_only else ("holds", "hold")
        if len(holds) == 1:
            sentence = f"The {one} {is_met}"
        else:
            sentence = f"{'Both' if len(holds) == 2 else f'All {len(holds)}'} {many} {are_met}"
    else:
        sentence = f"{len(holds)} of {len(outcomes)} {many} {'are met' if criteria_only else 'hold'}"
    parts = [sentence + (f" at {_SIZES[kind].lower()}" if criteria_only else "")]
    for standing, words in (
        (Standing.IN_PART, "met in part" if criteria_only else "holds in part"),
        (Standing.FAILS, "not met" if criteria_only else "does not hold"),
    ):
        names = [one.figure.name for one in others if one.verdict.standing is standing]
        if names:
            parts.append(f"{words}: {listed(names)}")
    return "; ".join(parts) + "."
