"""The page of ``attsvm reproduce``: claim, drawing, numbers and verdict of each figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from attsvm._version import __version__
from attsvm.pages.figure import svg_element
from attsvm.pages.page import Page, Part
from attsvm.pages.words import listed
from attsvm.papers.figure import Row, Standing
from attsvm.papers.run import Outcome, as_numbers, standing_words
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
class Card:
    """What the page and the terminal show of an outcome.

    Its drawing is text, so that a process can send a card to another one.
    """

    name: str  # name, paper, title, claim, criterion: of the figure
    paper: str
    title: str
    claim: str
    criterion: str
    kind: SizeKind  # whose sizes it has
    standing: Standing
    why: str
    rows: list[Row]
    sizes: str  # the sizes, the seconds of the measurement, and what was read from files of an earlier run
    seconds: float
    command: str  # the command that makes this figure alone
    drawing: Markup  # an SVG element
    numbers: dict[str, Any]  # the outcome as JSON-able numbers

    @property
    def words(self) -> str:
        """The verdict in words."""
        return standing_words(self.standing, self.kind)

    @property
    def look(self) -> str:
        """The class of the verdict in the style sheet."""
        return _LOOKS[self.standing]


def card(outcome: Outcome, command: str) -> Card:
    """The card of an outcome.

    ``command``: the command that was run.
    """
    figure = outcome.figure
    reused = f", {outcome.reused} of {outcome.pieces} pieces from an earlier run" if outcome.reused else ""
    sizes = "; ".join(f"{name} = {value}" for name, value in outcome.sizes.items())
    return Card(
        name=figure.name,
        paper=str(figure.paper),
        title=figure.title,
        claim=figure.claim,
        criterion=figure.criterion,
        kind=outcome.kind,
        standing=outcome.verdict.standing,
        why=outcome.verdict.why,
        rows=outcome.rows,
        sizes=f"{_SIZES[outcome.kind]}: {sizes}; {outcome.seconds:.1f} s{reused}",
        seconds=outcome.seconds,
        command=outcome.command,
        drawing=svg_element(outcome.drawing, figure.name, figure.title),
        numbers=as_numbers(outcome, command),
    )


def page(cards: Sequence[Card], command: str) -> str:
    """The whole page as HTML, self-contained.

    ``cards``: all of one kind of sizes. ``command``: the command that was run.
    """
    kind = cards[0].kind
    sizes = "" if kind is SizeKind.FULL else f" · {_SIZES[kind].lower()}"
    seconds = sum(card.seconds for card in cards)
    count = f"{len(cards)} figure{'s' * (len(cards) != 1)}"
    papers = list(dict.fromkeys(card.paper for card in cards))
    result = Page(
        {"command": command},
        title=f"Figures of the papers, measured again{_TITLES[kind]}",
        kicker=f"attsvm {__version__} · {count}{sizes} · {seconds:.0f} s of measurements",
        verdict=verdict_of_all(cards),
        body=lambda: [
            Part(
                "claims",
                {
                    "summary": cards if len(cards) > 1 else [],
                    "papers": [(paper, [card for card in cards if card.paper == paper]) for paper in papers],
                },
                [(card.name, card.title) for card in cards] if len(cards) > 1 else [],
            )
        ],
        notes=_NOTES[kind],
        footer="The numbers of each figure are in <name>.json and its drawing in <name>.png and .svg, in the folder of "
        "this page.",
    )
    return result.files()["index.html"].decode()


def verdict_of_all(cards: Sequence[Card]) -> str:
    """How many claims hold, or at other than the full sizes how many criteria are met, with the names of the others."""
    kind = cards[0].kind
    criteria_only = kind is not SizeKind.FULL
    one, many = ("criterion", "criteria") if criteria_only else ("claim", "claims")
    holds = [card for card in cards if card.standing is Standing.HOLDS]
    others = [card for card in cards if card.standing is not Standing.HOLDS]
    if not others:
        is_met, are_met = ("is met", "are met") if criteria_only else ("holds", "hold")
        if len(holds) == 1:
            sentence = f"The {one} {is_met}"
        else:
            sentence = f"{'Both' if len(holds) == 2 else f'All {len(holds)}'} {many} {are_met}"
    else:
        sentence = f"{len(holds)} of {len(cards)} {many} {'are met' if criteria_only else 'hold'}"
    parts = [sentence + (f" at {_SIZES[kind].lower()}" if criteria_only else "")]
    for standing, words in (
        (Standing.IN_PART, "met in part" if criteria_only else "holds in part"),
        (Standing.FAILS, "not met" if criteria_only else "does not hold"),
    ):
        names = [card.name for card in others if card.standing is standing]
        if names:
            parts.append(f"{words}: {listed(names)}")
    return "; ".join(parts) + "."
