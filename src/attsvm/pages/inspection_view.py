"""One head in detail, in words and tables: its numbers, what it selects and reads, and the reasons of its margin."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.text import head_label
from attsvm.pages.attention import attention_square
from attsvm.pages.links import file_links
from attsvm.pages.page import AnyPart, Details, Heading, SpecialPart, Table, Tables, Text
from attsvm.pages.words import percent, short

if TYPE_CHECKING:
    from attsvm.inspect import Explanation, FoundInspections, HeadView, TestedReason
    from attsvm.svm import MarginInterval

Words = Callable[[list[int]], list[str]]

MOST = 10
"""Pairs of origins that are shown."""

TERMS = {
    "constant_query": "the keys alone: every query prefers the same keys as the mean query",
    "interaction": "queries and keys together",
    "constant_key": "the queries alone, by their distances to the keys",
    "constants": "the distances between queries and keys alone",
    "biases": "biases that the layer adds to its logits, for example for positions",
}
"""The varying part of each term of the decision margin."""

LEAST = 5e-4
"""Share of a term that is shown."""


def detail(
    found: "FoundInspections",
    view: "HeadView",
    texts: list[list[str]],
    sentence: int,
    words: Words | None,
    asking: list[list[str]] | None = None,
) -> Iterator[AnyPart]:
    """The parts of the page about one head, on one sequence and its reasons on all of them.

    ``texts``: the tokens of every sequence. ``sentence``: the sequence that is shown, counted from 0. ``words``: from
    numbers of tokens of the vocabulary to their names. ``asking``: names of the queries, if they are not tokens.
    """
    asking = asking or texts
    sentence = min(sentence, len(view.selected) - 1)  # a layer may see fewer sequences, as of pictures
    yield Heading(f"Head {head_label(found.done.layer_names, view.layer, view.head)}")
    yield from _origins(view, found.tests)
    yield Heading("Numbers", 3)
    yield Tables([Table(head_rows(view))])
    yield Heading(f"Sequence {sentence}", 3)
    support = None if view.support is None else view.support[sentence]
    square = attention_square(
        texts[sentence], view.positions[sentence], view.probabilities[sentence], view.allowed[sentence],
        view.selected[sentence], support, asking=asking[sentence],
    )  # fmt: skip
    if square.fits:
        name = f"head-{view.layer}-{view.head}-sequence-{sentence}"
        yield SpecialPart(
            "square",
            {
                "lead": "Each row is a query, each column a token. The stronger the blue, the more attention. A frame "
                "marks the selected token, a dot a support token; hatched tokens are masked.",
                "square": square,
                "slider": "",
                "links": file_links(name, square.table()),
            },
        )
    yield view_table(view, texts[sentence], sentence, asking[sentence])
    if view.directions:
        yield Heading("What the head reads", 3)
        known = "" if view.weights == "acts on tokens" else f" ({view.weights})"
        yield Text(
            f"The singular directions of W{known} with the largest singular values. A query at one end raises the "
            "logits of keys at the same end and lowers the logits of keys at the other end. Which end comes first is "
            "arbitrary. Embeddings of the vocabulary are taken from the embedding table, before positions and norms.",
            "",
        )
        yield from _directions(view, texts, words, asking)
    triples = triple_table(view, texts, asking)
    if view.reasons is not None and triples.rows:
        said = (
            "W_svm is the smallest matrix with the same selection as this attention head. It is a sum over triples: a "
            "query, the token it selects and a token it drops, with their positions in parentheses. The share of a "
            "triple is "
            "its part of ‖W_svm‖². These reasons explain the Att-SVM, not W: the cosine between W and W_svm is "
            f"{view.reasons.cosine:z.2f}."
        )
        parts: list[AnyPart] = [Text(said, ""), triples, Text(change_words(view, texts, asking), "")]
        yield Details("Reasons of the Att-SVM", parts, open=view.reasons.cosine >= 0.5)


def terminal_detail(
    found: "FoundInspections",
    view: "HeadView",
    texts: list[list[str]],
    sentence: int,
    asking: list[list[str]] | None = None,
) -> Iterator[Table | str]:
    """List the tables and remarks of one head for the terminal, from the arguments of :func:`detail`."""
    asking = asking or texts
    sentence = min(sentence, len(view.selected) - 1)
    if view.explanation is not None and (pairs := _pair_table(view.explanation)).rows:
        yield "Parts of the decision margin, by what varies and by origin in the residual stream:"
        yield _term_table(view.explanation)
        yield pairs
    tests = _test_table(found.tests)
    if tests.rows:
        yield f"Causal tests of these reasons on held-out text. {TESTED}"
        yield tests
    if found.tests:
        yield untested_words(found.tests)
    yield Table([("head", head_label(found.done.layer_names, view.layer, view.head)), *head_rows(view)])
    yield view_table(view, texts[sentence], sentence, asking[sentence])
    triples = triple_table(view, texts, asking)
    if triples.rows:
        yield "The triples with the largest multipliers of the Att-SVM:"
        yield triples
        yield change_words(view, texts, asking)


def _origins(view: "HeadView", tests: "tuple[TestedReason, ...]") -> Iterator[AnyPart]:
    yield Heading("Origins in the residual stream", 3)
    explanation = view.explanation
    pairs = None if explanation is None else _pair_table(explanation)
    if explanation is None or pairs is None or not pairs.rows:
        yield Text(f"There is no split by origin. {view.unexplained[:1].upper()}{view.unexplained[1:]}.", "")
        return
    decisions = sum(int(np.count_nonzero(split.selected >= 0)) for split in explanation.splits)
    yield Text(
        "The decision margin of this head (the logit of the selected token minus that of the runner-up, summed over "
        f"{decisions:,} queries), split by what varies, and by the origins of its queries and keys. Shares are signed "
        "and may exceed 1; the shares in each table add up to 1.",
        "",
    )
    yield _term_table(explanation)
    yield Text(
        'Each origin is centred: its mean over all queries, or over all keys, is in "constant". All parts together '
        f"agree with the logits to {explanation.error:.0e}; the mean margin is {explanation.margin:z.3g}. "
        f"{_members(explanation.groups)}",
        "",
    )
    yield pairs
    if explanation.offsets(1):
        yield Text(_offset_words(explanation), "")
    if not tests:
        return
    yield Heading("Causal tests", 3)
    yield Text(
        "Each pair of origins is tested as a reason on held-out text by the mean attention to the tokens that the "
        "head selects. Origins are made random: what they add is that of a random token of the text, so that words "
        "and positions are shuffled. Sufficiency: the queries and keys keep the origins of the pair, and all "
        "others are random. Necessity: the origins of the pair are random, in the queries or in the keys, "
        "whichever matters less. Both are divided by the effect of making everything random. A pair passes if both "
        "are above 0.5 and above those of each of 20 random pairs, the controls, and fails if one is below 0.5 or "
        "below those of half of the controls. Otherwise it is undecided. What counts are means over "
        f"{_draws(tests)} draws of the random tokens and their 99 % intervals (Student's), which cover these draws and "
        "not the choice of the text. A pair that is itself a random one exceeds all 20 controls with a probability of "
        f"at most 1/21. Constant queries are the mean query. {TESTED}",
        "",
    )
    table = _test_table(tests)
    if table.rows:
        yield table
    if untested_words(tests):
        yield Text(untested_words(tests), "")


def _offset_words(explanation: "Explanation") -> str:
    """The distance at which most tokens are selected, and what decides there."""
    one = explanation.offsets(1)[0]
    side = f"{abs(one.offset)} before" if one.offset < 0 else f"{one.offset} after" if one.offset else "at"
    return (
        f"{percent(one.decisions)} of the decisions are for the token {side} the query's own place. Positions alone "
        f"make up {one.positions:+z.3f} of their margin, and content {one.content:+z.3f}."
    )


def _term_table(explanation: "Explanation") -> Table:
    """List what varies in each term, and its share of the margin."""
    shares = explanation.terms()._asdict()
    rows = [(TERMS[name], f"{share:+z.3f}") for name, share in shares.items() if abs(share) >= LEAST]
    return Table(rows, ["what varies", "share"], kind="terms")


def _pair_table(explanation: "Explanation") -> Table:
    """The pairs of groups with the largest shares: origin of the queries, origin of the keys, share."""
    rows = [(pair.query, pair.key, f"{pair.share:+z.3f}") for pair in explanation.pairs(MOST)]
    return Table(rows, ["queries from", "keys from", "share"], kind="origins", words=2)


TEST_COLUMNS = ("queries from", "keys from", "result", "attention", "sufficient", "necessary")

TESTED = (
    "Attention to the selected tokens: unchanged → with all other origins from random tokens, with the origins of the "
    "queries random, with the origins of the keys random. In parentheses: the largest mean of a control."
)
"""The meaning of the columns."""


def _test_table(tests: "tuple[TestedReason, ...]") -> Table:
    """A row for each reason that was tested."""
    lines = []
    for pair, test, _ in tests:
        if test is not None:
            scores = (float(one.mean()) for one in (test.alone, test.without_query, test.without_key))
            changed = ", ".join("-" if np.isnan(score) else f"{score:z.2f}" for score in scores)
            effects = (test.sufficiency, test.control_sufficiency), (test.necessity, test.control_necessity)
            cells = (
                f"{one.value:z.2f} ± {one.high - one.value:.2f} ({controls.mean(axis=-1).max():z.2f})"
                for one, controls in effects
            )
            lines.append((pair.query, pair.key, test.verdict, f"{test.score:z.2f} → {changed}", *cells))
    return Table(lines, TEST_COLUMNS, kind="origins", words=len(TEST_COLUMNS))


def _draws(tests: "tuple[TestedReason, ...]") -> int:
    return next((len(reason.test.alone) for reason in tests if reason.test is not None), 0)


def untested_words(tests: "tuple[TestedReason, ...]") -> str:
    """Why there are reasons without a test; empty if there are none."""
    left = {reason.untested: None for reason in tests if reason.test is None}
    return " ".join(f"{one[:1].upper()}{one[1:]}." for one in left)


def _members(groups: dict[str, list[str]]) -> str:
    """Which heads each set of more than one origin has."""
    sets = [f"{name} are {', '.join(of_group)}" for name, of_group in groups.items() if name.endswith(" heads")]
    return f"Sets of earlier heads: {'; '.join(sets)}." if sets else ""


def interval_words(interval: "MarginInterval") -> str:
    """The interval of a margin ratio, or why there is none."""
    if interval.lower is not None and interval.upper is not None:
        return f"{interval.lower:z.4g} to {interval.upper:z.4g}"
    return "no constraints" if interval.constraints == interval.duplicates else str(interval.status)


def head_rows(view: "HeadView") -> list[tuple[str, str]]:
    """Names and numbers of the head in detail."""
    interval = view.interval
    rows = [("‖W‖ Frobenius, nuclear, spectral", f"{view.norm:.4g}, {view.nuclear_norm:.4g}, {view.spectral_norm:.4g}")]
    if interval is not None:
        rows.append(("margin ratio (margin over the best of its norm)", interval_words(interval)))
        rows.append(("constraints, exact duplicates left out", f"{interval.constraints:,}, {interval.duplicates:,}"))
    if view.support is not None:
        rows.append(("support tokens", f"{np.count_nonzero(view.support):,}"))
    reasons = view.reasons
    if reasons is not None:
        rows.append(("cos(W, W_svm)", f"{reasons.cosine:z.3f}"))
        rows.append(("support among the tightest rows of W", f"{reasons.overlap:.3f} (chance {reasons.chance:.3f})"))
        rows.append(("smallest change that alters a selection, of ‖W‖_F", short(reasons.change.relative)))
    if view.factor_change is not None:
        change = view.factor_change
        rows.append(("smallest change of the key and query weights", f"{short(change.lower)} to {short(change.upper)}"))
    return rows


def triple_table(view: "HeadView", tokens: list[list[str]], asking: list[list[str]], most: int = 12) -> Table:
    """The triples with the largest multipliers: sequence, query, selected token, token that it is kept above, share.

    The tokens have their positions, because a token can occur several times.
    """
    reasons, lines = view.reasons, []
    for (i, q, t), share in (
        [] if reasons is None else zip(reasons.triples[:most].tolist(), reasons.shares[:most], strict=True)
    ):
        places = (int(view.positions[i, q]), int(view.selected[i, q]), t)
        query, chosen, dropped = map(_placed, (asking[i], tokens[i], tokens[i]), places)
        lines.append((str(i), query, chosen, dropped, f"{share:.2%}"))
    return Table(lines, ["sequence", "query", "selects", "over", "share"], kind="triples", words=4)


def change_words(view: "HeadView", tokens: list[list[str]], asking: list[list[str]]) -> str:
    """The smallest change of W, as a sentence; empty if there is none."""
    if view.reasons is None:
        return ""
    change = view.reasons.change
    names = tokens[change.sequence]
    at = change.sequence, change.query
    query = _placed(asking[change.sequence], int(view.positions[at]))
    chosen = _placed(names, int(view.selected[at]))
    return (
        f"The smallest change of W that alters a selection has Frobenius norm {short(change.norm)},"
        f" {short(change.relative)} of ‖W‖_F. With this change, the query {query} of sequence {change.sequence} "
        "selects"
        f" {_placed(names, change.token)} instead of {chosen}."
    )


def view_table(view: "HeadView", tokens: list[str], sentence: int, asking: list[str]) -> Table:
    """For each query of a sequence: its token, the selected token, its probability, and the support tokens if known."""
    lines = []
    for q, place in enumerate(view.positions[sentence]):
        if place < 0:
            continue
        selected = int(view.selected[sentence, q])
        line = [asking[place], tokens[selected], f"{view.probabilities[sentence, q, selected]:.3f}"]
        if view.support is not None:
            line.append(" ".join(tokens[t] for t in np.flatnonzero(view.support[sentence, q])))
        lines.append(line)
    columns = ["query", "selects", "probability", *(["support tokens"] if view.support is not None else [])]
    return Table(lines, columns, kind="queries", words=len(columns))


def _placed(names: list[str], place: int) -> str:
    return f"{names[place]} ({place})"


def _directions(
    view: "HeadView", texts: list[list[str]], words: Words | None, asking: list[list[str]]
) -> Iterator[Table]:
    """For each direction its share of ‖W‖², and a row of words at both ends for queries, keys and the vocabulary."""

    def placed(names: list[list[str]]) -> Callable[[Any], str]:
        return lambda places: " · ".join(names[i][place] for i, place in places.tolist())

    for number, one in enumerate(view.directions, 1):
        rows = [
            ("queries of the text", *map(placed(asking), one.query_ends)),
            ("keys of the text", *map(placed(texts), one.key_ends)),
        ]
        if words is not None and one.vocabulary_ends is not None:
            ends = (" · ".join(words(end.tolist())) for end in one.vocabulary_ends)
            rows.append(("keys of the vocabulary", *ends))
        title = f"Direction {number}: {percent(one.share)} of ‖W‖²"
        yield Table(rows, [title, "one end", "the other end"], kind="directions")
