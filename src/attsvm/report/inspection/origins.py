"""The split of a head's logits by origin, in words and as a table, for the terminal and the page."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attsvm.torch.inspection import HeadView

MOST = 10
"""Pairs of origins that are shown."""


def origin_lines(view: "HeadView") -> list[tuple[str, str, str]]:
    """The pairs of groups with the largest shares: origin of the queries, origin of the keys, share."""
    if view.explanation is None:
        return []
    return [(pair.query, pair.key, f"{pair.share:+.3f}") for pair in view.explanation.pairs(MOST)]


def origins_of(view: "HeadView") -> dict[str, Any]:
    """What the page says about origins."""
    lines, explanation = origin_lines(view), view.explanation
    if explanation is None:
        return {"pairs": [], "missing": f"{view.unexplained[:1].upper()}{view.unexplained[1:]}."}
    decisions = sum(int(np.count_nonzero(split.selected >= 0)) for split in explanation.splits)
    return {
        "pairs": lines,
        "decisions": f"{decisions:,}",
        "sum": f"All parts together agree with the logits to {explanation.error:.0e}; the mean margin is"
        f" {explanation.margin:.3g}. {_members(explanation.groups)}",
    }


def _members(groups: dict[str, list[str]]) -> str:
    """Which heads each set of more than one origin has."""
    sets = [f"{name} are {', '.join(of_group)}" for name, of_group in groups.items() if name.endswith(" heads")]
    return f"Sets of earlier heads: {'; '.join(sets)}." if sets else ""
