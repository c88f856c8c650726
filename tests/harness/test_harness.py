"""Each campaign in its small size. ``make soak`` runs the full size."""

import pytest

from harness.campaign import campaigns

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "case"), [(campaign.name, case) for campaign in campaigns().values() for case in campaign.small]
)
def test_a_case_finds_no_failure(name, case):
    campaign = campaigns()[name]
    if (reason := campaign.missing()) is not None:
        pytest.skip(reason)
    outcome = campaign.check(case)
    assert outcome.checked > 0
    assert outcome.failures == ()
