"""The page of ``attsvm reproduce``: claim, drawing, numbers and verdict of each figure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from attsvm._utils.progress import counted
from attsvm._version import __version__
from attsvm.pages.figure import svg_element
from attsvm.pages.page import Page, SpecialPart
from attsvm.pages.schemas.papers import FigureListResult, FiguresResult, ReproduceResult
from attsvm.pages.words import listed

if TYPE_CHECKING:
    from attsvm.papers import Figure, Outcome

_LOOKS = {"holds": "holds", "holds in part": "part", "does not hold": "fails"}

FULL = "full"
_SIZES = {FULL: "Sizes", "quick": "Quick sizes", "own": "Own sizes"}
_TITLES = {FULL: "", "quick": " (quick run)", "own": " (own sizes)"}
_NOTES: dict[str, list[str]] = {
    FULL: [],
    "quick": ["A quick run uses small sizes. Run without --quick to judge the claims."],
    "own": ["These are not the sizes of the figures. Run without --size to judge the claims."],
}


@dataclass(frozen=True)
class Claim:
    """An outcome as the page and the terminal show it.

    Its drawing is text, so that a process can send it to another one.
    """

    outcome: "Outcome"  # without its drawing
    drawing: Markup  # an SVG element
    numbers: dict[str, Any]  # the outcome as JSON-able numbers

    @classmethod
    def draw(cls, outcome: "Outcome", command: str) -> Self:
        """Make the drawing of an outcome. ``command``: the command that was run."""
        drawing = svg_element(outcome.drawing, outcome.figure.name, outcome.figure.title)
        numbers = outcome_page(outcome, command=command).numbers
        return cls(replace(outcome, drawing=Drawing()), drawing, numbers)

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


def figure_list_page(figures: "Sequence[Figure]", *, command: str) -> Page:
    """Make the page of the figures that there are; it has numbers alone."""
    return Page(FigureListResult.fill({"figures": figures}, command=command))


def outcome_page(outcome: "Outcome", *, command: str) -> Page:
    """Make the page of a single figure that was measured; it has numbers alone."""
    return Page(ReproduceResult.fill(outcome, command=command))


def claims_page(claims: Sequence[Claim], *, command: str) -> Page:
    """Make the page of several figures that were measured.

    ``claims``: all of one kind of sizes. ``command``: the command that was run.
    """
    kind = claims[0].outcome.kind
    sizes = "" if kind == FULL else f" · {_SIZES[kind].lower()}"
    seconds = sum(one.outcome.seconds for one in claims)
    papers: dict[str, list[Claim]] = {}
    for one in claims:
        papers.setdefault(str(one.outcome.figure.paper), []).append(one)
    several = claims if len(claims) > 1 else []
    entries = [(one.outcome.figure.name, one.outcome.figure.title) for one in several]
    return Page(
        FiguresResult.fill({"figures": {one.outcome.figure.name: one.numbers for one in claims}}, command=command),
        title=f"Figures from the papers, measured again{_TITLES[kind]}",
        kicker=f"attsvm {__version__} · {counted(len(claims), 'figure')}{sizes} · {seconds:.0f} s of measurements",
        verdict=verdict_of_all([one.outcome for one in claims]),
        body=lambda: [SpecialPart("claims", {"summary": several, "papers": list(papers.items())}, entries)],
        notes=_NOTES[kind],
        origin={},
        footer="The numbers of each figure are in <name>.json, and its drawing is in <name>.png and .svg, in the "
        "folder of this page.",
    )


def verdict_of_all(outcomes: "Sequence[Outcome]") -> str:
    """Say how many claims hold, or at other than the full sizes how many criteria are met, and name the others."""
    kind = outcomes[0].kind
    criteria_only = kind != FULL
    one, many = ("criterion", "criteria") if criteria_only else ("claim", "claims")
    holds = [one for one in outcomes if one.verdict.standing == "holds"]
    if len(holds) == len(outcomes):
        is_met, are_met = ("is met", "are met") if criteria_only else ("holds", "hold")
        if len(holds) == 1:
            sentence = f"The {one} {is_met}"
        else:
            sentence = f"{'Both' if len(holds) == 2 else f'All {len(holds)}'} {many} {are_met}"
    else:
        sentence = f"{len(holds)} of {len(outcomes)} {many} {'are met' if criteria_only else 'hold'}"
    parts = [sentence + (f" at {_SIZES[kind].lower()}" if criteria_only else "")]
    for standing, words in (("holds in part", "met in part"), ("does not hold", "not met")):
        names = [one.figure.name for one in outcomes if one.verdict.standing == standing]
        if names:
            parts.append(f"{words if criteria_only else standing}: {listed(names)}")
    return "; ".join(parts) + "."
