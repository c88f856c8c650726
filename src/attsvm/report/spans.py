"""Texts whose words are shaded by their attention."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A part of a text.

    Attributes
    ----------
    text : str
    share : float or None
        The attention that it receives; None for what lies between words.
    opacity : float
        By default the excess of the share over the average of the text, divided by the largest share. What is not above
        average stays unshaded, and so does nearly uniform attention.
    key : bool
        Whether it is underlined.
    """

    text: str
    share: float | None = None
    opacity: float = 0.0
    key: bool = False


def shaded(
    text: str,
    words: Iterable[tuple[int, int, float, bool]],
    between: Callable[[str], str] = str,
    opacities: Sequence[float] | None = None,
) -> list[Span]:
    """Split a text into its words and what lies between them.

    Parameters
    ----------
    text : str
    words : iterable of (int, int, float, bool)
        Begin, end, share of the attention, and whether it is a key word; in their order.
    between : callable
        Applied to the text between words.
    opacities : sequence of float, optional
        One for each word.
    """
    words = list(words)
    if opacities is None:
        average = sum(share for _, _, share, _ in words) / max(len(words), 1)
        largest = max((share for _, _, share, _ in words), default=0.0) or 1.0
        opacities = [max(share - average, 0.0) / largest for _, _, share, _ in words]
    spans, at = [], 0
    for (begin, end, share, key), opacity in zip(words, opacities, strict=True):
        spans.append(Span(between(text[at:begin])))
        spans.append(Span(text[begin:end], share, opacity, key))
        at = end
    return [*spans, Span(between(text[at:]))]
