"""The figure of sparse attention shows every layer, and their mean."""

import numpy as np
import pytest

from attsvm.pages.experiment_figures import draw_sparsity


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
