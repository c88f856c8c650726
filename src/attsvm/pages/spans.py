"""Texts whose words are shaded by their attention."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from attsvm.pages.over_steps import over as of_slider


class Span(NamedTuple):
    """A part of a text."""

    text: str
    share: float | None = None  # the attention that it receives; None for what lies between words
    # by default the excess of the share over the average of the text, divided by the largest share. What is not above
    # average stays unshaded, and so does nearly uniform attention.
    opacity: float = 0.0
    key: bool = False  # whether it is underlined
    over: Markup = Markup("")  # attributes for the slider over the steps, see :func:`attsvm.pages.over_steps.over`


def shaded(
    text: str,
    words: Iterable[tuple[int, int, float, bool]],
    between: Callable[[str], str] = str,
    opacities: Sequence[float] | None = None,
    over: Sequence[Markup] | None = None,
) -> list[Span]:
    """Split a text into its words and what lies between them.

    ``words``: begin, end, share of the attention, and whether it is a key word; in their order. ``between``: applied to
    the text between words. ``opacities``: one for each word. ``over``: one for each word.
    """
    words = list(words)
    opacities = above_average([share for _, _, share, _ in words]).tolist() if opacities is None else opacities
    attributes_of = [Markup("")] * len(words) if over is None else over
    spans, at = [], 0
    for (begin, end, share, key), opacity, attributes in zip(words, opacities, attributes_of, strict=True):
        spans.append(Span(between(text[at:begin])))
        spans.append(Span(text[begin:end], share, opacity, key, attributes))
        at = end
    return [*spans, Span(between(text[at:]))]


def above_average(shares: Sequence[float] | Float[np.ndarray, "*R T"]) -> Float[np.ndarray, "*R T"]:
    """The opacities of the words of a text: the excess over its average, divided by its largest share.

    Examples
    --------
    >>> from attsvm.pages.spans import above_average
    >>> above_average([0.25, 0.75, 0.5])
    array([0.        , 0.33333333, 0.        ])
    """
    given = np.asarray(shares, dtype=float)
    if not given.shape[-1]:
        return given
    largest = given.max(axis=-1, keepdims=True)
    excess = np.maximum(given - given.mean(axis=-1, keepdims=True), 0.0)
    opacities: np.ndarray = excess / np.where(largest > 0, largest, 1.0)
    return opacities


def over_steps(opacities: Float[np.ndarray, "R T"], shares: Float[np.ndarray, "R T"]) -> list[Markup]:
    """For each word of a text what a slider needs: its opacities, and its shares, at the recorded steps."""
    return [
        of_slider(np.round(opacity, 2).tolist(), [f"{100 * share:.1f}" for share in of_word])
        for opacity, of_word in zip(opacities.T, shares.T, strict=True)
    ]
