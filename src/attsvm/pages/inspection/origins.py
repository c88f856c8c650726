"""The split of a head's logits by origin, in words and as a table, for the terminal and the page."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attsvm.inspect.tested import TestedReason
    from attsvm.inspect.view import HeadView

MOST = 10
"""Pairs of origins that are shown."""

TERMS = {
    "constant_query": "the keys alone: every query prefers the same keys, those of the mean query",
    "interaction": "queries and keys together",
    "constant_key": "the queries alone, by their distances to the keys",
    "constants": "the distances between queries and keys alone",
}
"""What varies in each term of the decision margin."""

LEAST = 5e-4
"""Share of a term that is shown."""


def term_lines(view: "HeadView") -> list[tuple[str, str]]:
    """What varies, and the share of the margin, for each term."""
    if view.explanation is None:
        return []
    shares = view.explanation.terms()._asdict()
    return [(TERMS[name], f"{share:+.3f}") for name, share in shares.items() if abs(share) >= LEAST]


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
        "terms": term_lines(view),
        "pairs": lines,
        "decisions": f"{decisions:,}",
        "sum": f"All parts together agree with the logits to {explanation.error:.0e}; the mean margin is"
        f" {explanation.margin:.3g}. {_members(explanation.groups)}",
    }


TEST_COLUMNS = ("queries from", "keys from", "attention", "sufficient", "necessary", "result")

TESTED = (
    "Attention to the selected tokens: as it is → with all other origins from random tokens, with those of the queries,"
    " with those of the keys. In parentheses: the largest of the controls."
)
"""What the columns say."""


def test_lines(tests: "tuple[TestedReason, ...]") -> list[tuple[str, ...]]:
    """A row of :data:`TEST_COLUMNS` for each reason that was tested."""
    lines = []
    for pair, test, _ in tests:
        if test is not None:
            scores = (test.alone, test.without_query, test.without_key)
            changed = ", ".join("-" if np.isnan(score) else f"{score:.2f}" for score in scores)
            effects = (test.sufficiency, test.control_sufficiency), (test.necessity, test.control_necessity)
            cells = (f"{effect:.2f} ({controls.max():.2f})" for effect, controls in effects)
            passed = "passed" if test.passed else "failed"
            lines.append((pair.query, pair.key, f"{test.score:.2f} → {changed}", *cells, passed))
    return lines


def untested_words(tests: "tuple[TestedReason, ...]") -> str:
    """Why there are reasons without a test; empty if there are none."""
    left = {reason.untested: None for reason in tests if reason.test is None}
    return " ".join(f"{one[:1].upper()}{one[1:]}." for one in left)


def tests_of(tests: "tuple[TestedReason, ...]") -> dict[str, Any]:
    """What the page says about causal tests."""
    return {"columns": TEST_COLUMNS, "said": TESTED, "rows": test_lines(tests), "untested": untested_words(tests)}


def _members(groups: dict[str, list[str]]) -> str:
    """Which heads each set of more than one origin has."""
    sets = [f"{name} are {', '.join(of_group)}" for name, of_group in groups.items() if name.endswith(" heads")]
    return f"Sets of earlier heads: {'; '.join(sets)}." if sets else ""
