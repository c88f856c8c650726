"""Shading of words by their attention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attsvm.pages.attention import shaded
from attsvm.plot.style import ink_on


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_words_with_at_most_average_attention_are_white(shares):
    text = " ".join("x" * len(shares))
    spans = shaded(text, [(2 * k, 2 * k + 1, share, False) for k, share in enumerate(shares)])
    assert "".join(span.text for span in spans) == text
    words = [span for span in spans if span.share is not None]
    for word in words:
        assert 0 <= word.opacity <= 1
        assert (word.opacity > 0) <= (word.share >= np.mean(shares) - 1e-15)
    order = np.argsort(shares)
    assert np.all(np.diff([words[k].opacity for k in order]) >= 0)
    # nearly uniform attention is nearly white
    if max(shares) > 0:
        assert max(word.opacity for word in words) == pytest.approx(1 - np.mean(shares) / max(shares), abs=1e-12)


@given(st.tuples(*[st.floats(0, 1)] * 3))
def test_text_on_a_colour_has_the_larger_contrast(rgb):
    """Contrast of WCAG 2.2, which is above 4 for one of the two on every colour."""

    def luminance(colour):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    on_white = 1.05 / (luminance(rgb) + 0.05)
    dark = [0x10 / 255, 0x10 / 255, 0x14 / 255]
    on_dark = (luminance(rgb) + 0.05) / (luminance(dark) + 0.05)
    chosen = on_white if ink_on(rgb) == "white" else on_dark
    assert chosen >= 0.94 * max(on_white, on_dark)  # the dark ink is not quite black
    assert chosen >= 4
