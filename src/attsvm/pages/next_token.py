"""The page of ``attsvm next-token``: a graph, numbers and examples for each last word."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.pages.attention import Span
from attsvm.pages.page import AnyPart, Card, Cards, Heading, Page, SpecialPart, Table, Tables, Text
from attsvm.pages.schemas.texts import CorpusFields, DescentFields, LastWordFields, NextTokenResult
from attsvm.pages.words import Rows, listed, number, percent, rate, share_interval
from attsvm.results import Status

if TYPE_CHECKING:
    from attsvm._fit import LastWord, NextWords

EXAMPLES = 4
"""Held-out contexts that are shown of a last word."""

RULES = {
    "prediction": "graph and finite part",
    "recent": "most recent occurrence",
    "frequent": "most frequent word",
    "bigram": "most frequent next word",
}
"""The rules that are compared with trained attention. Only the first one is the theory's."""


def next_token_page(done: "NextWords", **about: Any) -> Page:
    """Make the page of next words, from the arguments of :func:`next_word_numbers`."""
    result = next_word_numbers(done, **about)
    data = result["data"]
    together = Table.named(tables(done, result))
    return Page(
        result,
        title=f"{data['source'].rsplit('/', 1)[-1]}: which words attention copies",
        kicker=f"{data['train']:,} training and {data['test']:,} held-out texts · {data['vocabulary']:,} words · "
        f"contexts of at most {data['length']}",
        verdict=verdict(result),
        body=partial(_body, done, result, together),
        notes=[*notes(result)],
        terminal=together,
        footer="The graphs: Mechanics of Next Token Prediction with Self-Attention.",
    )


def _body(done: "NextWords", result: dict[str, Any], together: list[Table]) -> Iterator[AnyPart]:
    agreement = result["held_out"]["agreement"]
    small = "agreement with trained attention on held-out contexts"
    shares = {name.capitalize(): shown_share(agreement[rule]) for rule, name in RULES.items()}
    yield Cards([Card.share(name, share, small) for name, share in shares.items()])
    yield Heading("Last words")
    yield Text(
        "If the word y follows a context, attention should prefer y to the other words of the context. These "
        "preferences form a graph for each last word. Words that contradict each other form one component (framed), "
        "and attention keeps a finite share of each of them. In the limit, the highest component gets all the "
        "attention. Lines lead to lower components; orders that follow from others are left out. Point at a word for "
        "its counts, and at a "
        "component for what it is compared with."
    )
    words = [
        {"name": done.train.names[one.number], "parts": [*_last_word_parts(done, one, numbers)]}
        for one, numbers in zip(done.last_words, result["last_words"], strict=True)
    ]
    yield SpecialPart("words", {"words": words})
    yield Heading("All last words together")
    yield Text(
        "One context from each held-out text, so that the contexts are independent. Most recent occurrence: the word "
        "after the latest earlier occurrence of the last word or, if there is none, the word before the last word. "
        "Most frequent word: the word with the most copies in the context. Most frequent next word: the word of the "
        "context that followed the last word most often in the training contexts. The intervals have a confidence "
        "level of 95%."
    )
    yield Tables(together)


def _last_word_parts(done: "NextWords", one: "LastWord", numbers: dict[str, Any]) -> Iterator[AnyPart]:
    found, names = numbers["held_out"], done.train.names
    yield Text(
        f"{numbers['label_absent']:,} of the {numbers['contexts']:,} training contexts do not contain their next word "
        "and are left out.",
        "note",
    )
    if not one.predicted and one.held_out:
        yield Text(
            f"The graph-SVM is {numbers['status']} with these vectors: no weights keep this order, so there is no "
            "prediction.",
            "note",
        )
    # pairs of components whose order is no consequence of others
    yield SpecialPart("graph", {"levels": _levels(one, names), "links": one.graph.priorities.covers().tolist()})
    rules = [
        ("trained attention", "", shown_share(found["next_word"]["attention"])),
        *(
            (name, shown_share(found["agreement"][rule]), shown_share(found["next_word"][rule]))
            for rule, name in RULES.items()
        ),
    ]
    yield Table(rules, ["", "agrees with attention", "is the next word"], "Held-out contexts", "rules")
    excess = numbers["loss"] - numbers["least_loss"]
    rows = [
        ("components, words of the largest", f"{numbers['components']}, {numbers['largest_component']}"),
        ("graph-SVM", f"{numbers['status']}, relative gap {number(numbers['gap'])}"),
        ("finite part", f"{numbers['finite_status']}, norm {number(numbers['finite_norm'])}"),
        ("loss of trained attention, above its limit", f"{number(numbers['loss'])}, {number(excess)}"),
        ("held-out contexts, ordered by the graph", f"{found['contexts']:,}, {found['ordered']:,}"),
        ("distance of trained and predicted shares", number(found["total_variation"])),
    ]
    yield Tables([Table(rows)])
    examples = [_example(one, names, place) for place in range(min(EXAMPLES, len(one.held_out)))]
    yield SpecialPart("examples", {"slider": "", "texts": examples, "beside": False})


def verdict(result: dict[str, Any]) -> str:
    """The result in two sentences."""
    agreement = result["held_out"]["agreement"]
    if agreement["prediction"]["share"] is None:
        return "No held-out context has a prediction."
    shares = {name: shown_share(found) for name, found in agreement.items()}
    some = "" if agreement["prediction"]["count"] < 20 else " of the"
    return (
        f"Trained attention selects the predicted word in {shares['prediction']}{some} held-out contexts, the word of "
        f"the most recent occurrence in {shares['recent']}, and the most frequent word of the context in "
        f"{shares['frequent']}."
    )


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Where the theory does not apply."""
    found, words = result["held_out"], result["last_words"]
    absent, contexts = (sum(word[name] for word in words) for name in ("label_absent", "contexts"))
    yield (
        f"{absent:,} of the {contexts:,} training contexts ({percent(absent / contexts)}) do not contain their next "
        "word. They say nothing about what to copy, so they are left out."
    )
    infeasible = [f"“{word['word']}”" for word in words if word["status"] == Status.INFEASIBLE]
    if infeasible:
        yield (
            f"No weights keep the order of the graph for the last words {listed(infeasible)}: with these vectors, the "
            f"graph-SVM is infeasible. Their {found['without_prediction']:,} held-out contexts have no "
            "prediction."
        )
    unordered = found["contexts"] - found["ordered"]
    if unordered:
        yield (
            f"In {unordered:,} of the {found['contexts']:,} held-out contexts with a prediction the graph does not "
            "order the words, because the training contexts never compared them; for these, the prediction depends on "
            "the word vectors."
        )


def tables(done: "NextWords", result: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Agreement, next words, data."""
    found, data = result["held_out"], result["data"]
    for key, name in (
        ("agreement", "Agreement with trained attention"),
        ("agreement_in_vocabulary", f"… where it selects a word other than {done.train.names[-1]}"),
    ):
        yield name, [(what, shown_share(found[key][rule])) for rule, what in RULES.items()]
    labels = {"attention": "trained attention", **RULES}
    yield (
        "Next word is the selected word, if the context contains it",
        [(what, shown_share(found["next_word"][rule])) for rule, what in labels.items()],
    )
    yield (
        "Data",
        [
            ("texts: training, held out", f"{data['train']:,}, {data['test']:,}"),
            ("words of the training texts", f"{data['train_words']:,}"),
            ("… in the vocabulary", percent(data["in_vocabulary"])),
            ("vocabulary", f"{data['vocabulary']:,}"),
            ("tokenizer", data["tokenizer"]),
            ("vectors", "orthonormal" if data["dim"] is None else f"learnt, d = {data['dim']}"),
            ("longest context", f"{data['length']} words"),
            ("held-out contexts with a prediction", f"{found['contexts']:,}"),
            ("distance of trained and predicted shares", number(found["total_variation"])),
        ],
    )


def _levels(one: "LastWord", names: tuple[str, ...]) -> list[list[dict[str, Any]]]:
    """The components of each level of priority, from the highest one, with what to show of each word."""
    graph = one.graph
    contexts = graph.contexts
    assert contexts is not None
    present = np.bincount(np.unique(contexts.owner * len(names) + contexts.ids) % len(names), minlength=len(names))
    asked = np.bincount(contexts.labels, minlength=len(names))
    component, level = graph.priorities.component, graph.priorities.level
    rows: list[list[dict[str, Any]]] = [[] for _ in range(int(level.max()) + 1)]
    for words in graph.components(one.number):
        own = int(component[graph.node_of(np.array(one.number), np.array(words[0]))])
        order = sorted(words, key=lambda word: (-asked[word], names[word]))
        rows[level[own]].append(
            {
                "id": own,
                "words": [
                    (names[word], f"{names[word]}: next in {asked[word]:,} of {present[word]:,} contexts with it")
                    for word in order
                ],
            }
        )
    return [sorted(row, key=lambda box: -len(box["words"])) for row in rows]


def _example(one: "LastWord", names: tuple[str, ...], place: int) -> dict[str, Any]:
    context, selected = one.held_out[place], one.selected
    rows = [("trained", one.attention[place])]
    if one.predicted:
        rows.append(("predicted", one.predicted[place]))
    follows = names[selected.next_word[place]]
    return {
        "heading": f"Next word “{follows}”",
        "small": "in the context" if selected.contains[place] else "not in the context, so it cannot be copied",
        "readings": [(name, _shaded(context, shares, names)) for name, shares in rows],
    }


def _shaded(context: np.ndarray, shares: np.ndarray, names: tuple[str, ...]) -> list[Span]:
    largest = float(shares.max())
    spans = []
    for word, share in zip(context.tolist(), shares.tolist(), strict=True):
        spans += [Span(names[word], share, share / largest), Span(" ")]
    return spans


def next_word_numbers(done: "NextWords", *, source: str, **about: Any) -> dict[str, Any]:
    """The result as JSON-able numbers.

    ``source``: of the texts. ``about``: the command, and the limit on threads.
    """
    flat = np.concatenate(done.train.documents)
    other = len(done.train.names) - 1
    return NextTokenResult.fill(
        done,
        **about,
        data=CorpusFields.fill(
            done,
            source=source,
            train=len(done.train.documents),
            test=len(done.test.documents),
            train_words=len(flat),
            vocabulary=other,
            in_vocabulary=np.mean(flat != other),
        ),
        training=DescentFields.fill(done.options, optimizer="gradient descent with momentum"),
        held_out=_compared(done.last_words, other),
        last_words=[_last_word_numbers(done, one) for one in done.last_words],
    )


def _last_word_numbers(done: "NextWords", one: "LastWord") -> dict[str, Any]:
    components = one.graph.components(one.number)
    return LastWordFields.fill(
        one,
        word=done.train.names[one.number],
        edges=len(one.graph.edges),
        components=len(components),
        largest_component=max(map(len, components)),
        finite_norm=np.linalg.norm(one.finite.weights),
        held_out=_compared([one], len(done.train.names) - 1),
    )


def _compared(words: "Sequence[LastWord]", other: int) -> dict[str, Any]:
    """Agreement with trained attention and with the next word, over held-out contexts that have a prediction."""
    rows = [one.selected for one in words if one.predicted]
    names = ("attention", *RULES)
    chosen = {name: _joined([row.chosen[name] for row in rows]) for name in names}
    next_word, contains, ordered = (
        _joined([getattr(row, name) for row in rows]) for name in ("next_word", "contains", "ordered")
    )
    contains = contains.astype(bool)
    known = chosen["attention"] != other
    distances = [
        0.5 * float(np.abs(attention - predicted).sum())
        for one in words
        for attention, predicted in zip(one.attention, one.predicted, strict=bool(one.predicted))
    ]
    return {
        "contexts": len(next_word),
        "without_prediction": sum(len(one.held_out) for one in words if not one.predicted),
        "label_absent": int((~contains).sum()),
        "ordered": int(ordered.sum()),
        "total_variation": float(np.mean(distances)) if distances else None,
        "agreement": {name: _share(chosen[name] == chosen["attention"]) for name in RULES},
        "agreement_in_vocabulary": {name: _share((chosen[name] == chosen["attention"])[known]) for name in RULES},
        "next_word": {name: _share((chosen[name] == next_word)[contains]) for name in names},
    }


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _share(hits: np.ndarray) -> dict[str, Any]:
    """A share with its count and its interval; None without rows."""
    if not len(hits):
        return {"share": None, "count": 0, "interval": None}
    share = float(hits.mean())
    return {"share": share, "count": len(hits), "interval": share_interval(share, len(hits))}


def shown_share(found: dict[str, Any]) -> str:
    """A share of :func:`next_word_numbers` with its interval."""
    return "-" if found["share"] is None else rate(found["share"], found["count"], found["interval"])
