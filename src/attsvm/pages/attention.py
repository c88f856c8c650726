"""Attention on a page: texts whose words are shaded by it, and squares of cells for one sequence."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.pages.links import csv_text
from attsvm.pages.over_steps import slider_attributes

WIDEST = 48
"""Most tokens of a sequence whose attention is drawn as a square."""


class Span(NamedTuple):
    """A part of a text."""

    text: str
    share: float | None = None  # the attention that it receives; None for what lies between words
    # by default the excess of the share over the average of the text, divided by the largest share. What is not above
    # average stays unshaded, and so does nearly uniform attention.
    opacity: float = 0.0
    key: bool = False  # whether it is underlined
    over: Markup = Markup("")  # of :func:`attsvm.pages.over_steps.slider_attributes`


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
    """The opacities of the words of a text: the excess over its average, divided by its largest share."""
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
        slider_attributes(np.round(opacity, 2).tolist(), [f"{100 * share:.1f}" for share in of_word])
        for opacity, of_word in zip(opacities.T, shares.T, strict=True)
    ]


class Square(NamedTuple):
    """The attention on a sequence, as cells."""

    columns: list[str]  # the tokens that some query may attend to
    rows: list[tuple[str, list[dict[str, Any] | None]]]  # for each query its token, and a cell for each column
    numbered: bool = False  # whether rows and columns have numbers, and not words

    @property
    def fits(self) -> bool:
        """Whether a page has room for it."""
        return bool(self.rows) and len(self.columns) <= WIDEST

    def table(self) -> str:
        """The cells as CSV: query, token and probability; masked tokens are left out."""
        cells = ((query, one["token"], one["probability"]) for query, cells in self.rows for one in cells if one)
        return csv_text(["query", "token", "probability"], cells)


def attention_square(
    names: list[str],
    positions: Int[np.ndarray, " Q"],
    probabilities: Float[np.ndarray, "Q T"],
    allowed: Bool[np.ndarray, "Q T"],
    selected: Int[np.ndarray, " Q"],
    support: Bool[np.ndarray, "Q T"] | None = None,
    over: Float[np.ndarray, "R Q T"] | None = None,
    asking: list[str] | None = None,
) -> Square:
    """The cells of a sequence; None in place of a masked one.

    ``names``: of the T tokens. ``positions``: of the queries; −1 where there is none. ``selected``: the token that each
    query selects. ``support``: support tokens, which get a dot. ``over``: the probabilities at the steps of a slider.
    ``asking``: names of the queries at their places, if they are not tokens.
    """
    present = np.flatnonzero(allowed.any(axis=0))
    rows: list[tuple[str, list[dict[str, Any] | None]]] = []
    for q, place in enumerate(positions):
        if place < 0:
            continue
        cells = [
            {
                "token": names[t],
                "probability": float(probabilities[q, t]),
                "chosen": bool(t == selected[q]),
                "support": support is not None and bool(support[q, t]),
                "over": "" if over is None else slider_attributes(over[:, q, t].tolist()),
            }
            if allowed[q, t]
            else None
            for t in present
        ]
        rows.append(((asking or names)[place], cells))
    return Square([names[t] for t in present], rows)
