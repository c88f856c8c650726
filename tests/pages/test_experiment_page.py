"""The words and the figures of an experiment's page."""

import numpy as np
import pytest

from attsvm.pages.experiment import comparisons
from attsvm.pages.experiment_figures import draw_sparsity


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


def test_lines_are_the_layers_and_their_mean():
    generator = np.random.default_rng(0)
    evenness, norms = generator.random((2, 4, 3))
    history = [
        {
            "epoch": epoch,
            "attention_evenness": {"class": even.tolist(), "all": [0.0] * 3},
            "key_query_norm": norm.tolist(),
        }
        for epoch, (even, norm) in enumerate(zip(evenness, norms, strict=True))
    ]
    drawn = draw_sparsity([{"optimizer": "adam", "history": history}])
    for axis, values in zip(drawn.figure.axes, (evenness, norms), strict=True):
        lines = [line.get_ydata() for line in axis.get_lines()]
        np.testing.assert_array_equal(lines[:3], values.T)
        assert lines[3] == pytest.approx(values.sum(axis=1) / 3)
    first, last = (f"{evenness[row].sum() / 3:.2f}" for row in (0, -1))
    assert f"Adam {first} → {last} and" in drawn.caption
