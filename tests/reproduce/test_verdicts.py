"""The sentence over all verdicts, and what a quick run is allowed to say."""

import pytest
from matplotlib.figure import Figure as Drawing

from attsvm.reproduce import FIGURES, Outcome, Standing, Verdict
from attsvm.reproduce.page import Card, card, page, verdict_of_all

HOLDS, IN_PART, FAILS = Standing.HOLDS, Standing.IN_PART, Standing.FAILS


def card_of(name: str, standing: Standing, quick: bool) -> Card:
    figure = FIGURES.find(name)
    verdict = Verdict(standing, f"Why of {name}.")
    return card(Outcome(figure, name, quick, dict(figure.quick), {}, verdict, [], Drawing(), 1.0, 2, 1), "")


@pytest.mark.parametrize(
    ("standings", "quick", "sentence"),
    [
        ([HOLDS], False, "The claim holds."),
        ([HOLDS, HOLDS], False, "Both claims hold."),
        ([HOLDS] * 3, False, "All 3 claims hold."),
        ([HOLDS, FAILS, IN_PART], False, "1 of 3 claims hold; holds in part: rank; does not hold: losses."),
        ([HOLDS] * 3, True, "All 3 criteria are met at quick sizes."),
        ([FAILS, HOLDS, FAILS], True, "1 of 3 criteria are met at quick sizes; not met: bregman and rank."),
    ],
)
def test_the_verdict_counts_claims_in_a_sentence(standings, quick, sentence):
    names = ["bregman", "losses", "rank"]
    cards = [card_of(name, standing, quick) for name, standing in zip(names, standings, strict=False)]
    assert verdict_of_all(cards) == sentence


def test_a_quick_run_says_so_everywhere_and_that_no_claim_holds():
    cards = [card_of(name, HOLDS, quick=True) for name in ("rank", "losses")]
    html = page(cards, "attsvm reproduce rank losses --quick")
    assert "measured again (quick run)</h1>" in html
    for name in ("rank", "losses"):
        assert f"<code>attsvm reproduce {name} --quick</code>" in html
    assert html.count("quick: criterion met<") == 4
    assert "claims hold" not in html
    assert ">holds<" not in html
    assert cards[0].numbers["verdict"] == "quick: criterion met"
    full = page([card_of(name, HOLDS, quick=False) for name in ("rank", "losses")], "attsvm reproduce rank losses")
    assert full.count(">holds<") == 4
    assert "quick" not in full.split("</style>")[1]
