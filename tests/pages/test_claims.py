"""The sentence over all verdicts, and what a quick run is allowed to say."""

import pytest
from matplotlib.figure import Figure as Drawing

from attsvm.pages import Claim, make_page
from attsvm.pages.claims import verdict_of_all
from attsvm.papers import FIGURES, Outcome, Standing, Verdict, run

HOLDS, IN_PART, FAILS = Standing.HOLDS, Standing.IN_PART, Standing.FAILS


def outcome_of(name: str, standing: Standing, quick: bool) -> Outcome:
    figure = FIGURES.find(name)
    verdict = Verdict(standing, f"Why of {name}.")
    return Outcome(figure, name, quick, dict(figure.quick), {}, verdict, [], Drawing(), 1.0, 2, 1)


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
    outcomes = [outcome_of(name, standing, quick) for name, standing in zip(names, standings, strict=False)]
    assert verdict_of_all(outcomes) == sentence


def test_a_quick_run_says_so_everywhere_and_that_no_claim_holds():
    quick, whole = (
        [Claim.draw(outcome_of(name, HOLDS, of), "") for name in ("rank", "losses")] for of in (True, False)
    )
    html = make_page(quick, command="attsvm reproduce rank losses --quick").html()
    assert "measured again (quick run)</h1>" in html
    for name in ("rank", "losses"):
        assert f"<code>attsvm reproduce {name} --quick</code>" in html
    assert html.count("quick: criterion met<") == 4
    assert "claims hold" not in html
    assert ">holds<" not in html
    assert quick[0].numbers["verdict"] == "quick: criterion met"
    full = make_page(whole, command="attsvm reproduce rank losses").html()
    assert full.count(">holds<") == 4
    assert "quick" not in full.split("</style>")[1]


def test_sizes_of_the_user_are_named_and_judge_no_claim(tmp_path):
    outcome = run("feasibility", tmp_path, quick=True, sizes={"dims": "2,12", "problems": 30, "queries": {"cross": {}}})
    assert outcome.arrays["feasible"].shape == (2, 2)
    assert outcome.sizes["dims"] == [2, 12]
    assert outcome.standing == "own sizes: criterion met"
    options = "--size dims=2,12 --size problems=30 --size 'queries={\"cross\": {}}'"
    assert outcome.command == f"attsvm reproduce feasibility --quick {options}"
    html = make_page([Claim.draw(outcome, outcome.command)], command=outcome.command).html()
    assert "measured again (own sizes)</h1>" in html
    assert ">holds<" not in html
