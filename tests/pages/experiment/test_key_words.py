"""In how many sentences one run attends more to the key words than another."""

from attsvm.pages.experiment import comparisons


def run(optimizer, *attention):
    return {"optimizer": optimizer, "key_words": {"sentences": [{"key_scaled": value} for value in attention]}}


def test_sentences_are_compared_in_pairs_and_ties_do_not_count():
    first = run("mirror-1.1", 0.9, 0.8, 0.7, 0.6, 0.5, 0.1)
    other = run("mirror-2", 0.1, 0.1, 0.1, 0.1, 0.5, 0.2)
    # 4 or more heads of 5 coins, or as few tails: (5 + 1 + 5 + 1)/32
    counts = "4 of 6 sentences, and less in 1 (sign test, p = 0.38)."
    assert comparisons([first, other]) == f"ℓ1.1 mirror descent gives more than ℓ2 mirror descent in {counts}"
    assert "in 0 of 6 sentences, and less in 0 (sign test, p = 1)" in comparisons([first, first])
    assert comparisons([first]) == ""
