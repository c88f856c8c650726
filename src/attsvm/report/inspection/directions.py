"""The directions that a head reads, as tables of the tokens at their ends."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attsvm.report.words import percent

if TYPE_CHECKING:
    from attsvm.torch.inspection import HeadView

Words = Callable[[list[int]], list[str]]


def directions_of(view: "HeadView", texts: list[list[str]], words: Words | None) -> list[dict[str, Any]]:
    """For each direction its share of ‖W‖², and a row of words at both ends for queries, keys and the vocabulary.

    ``texts``: the tokens of every sequence. ``words``: from numbers of tokens of the vocabulary to their names.
    """

    def placed(places: Any) -> str:
        return " · ".join(texts[i][place] for i, place in places.tolist())

    found = []
    for number, one in enumerate(view.directions, 1):
        rows = [
            ("queries of the text", *map(placed, one.query_ends)),
            ("keys of the text", *map(placed, one.key_ends)),
        ]
        if words is not None and one.vocabulary_ends is not None:
            ends = (" · ".join(words(end.tolist())) for end in one.vocabulary_ends)
            rows.append(("keys of the vocabulary", *ends))
        found.append({"title": f"Direction {number}: {percent(one.share)} of ‖W‖²", "rows": rows})
    return found
