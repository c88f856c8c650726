"""The page of ``attsvm fit-text --task next-token``: a graph, numbers and examples for each last word."""

from pathlib import Path
from typing import Any

import numpy as np

from attsvm._fit.texts.next_words import LastWord, NextWords
from attsvm.pages.next_words.numbers import RULES, notes, shown_share, tables, verdict
from attsvm.pages.render import render
from attsvm.pages.spans import Span
from attsvm.pages.words import number
from attsvm.pages.write import write_page

EXAMPLES = 4
"""Held-out contexts that are shown of a last word."""


def write_next_word_folder(folder: Path, done: NextWords, result: dict[str, Any], command: str) -> None:
    """Write ``index.html`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.next_words.numbers.next_word_numbers`. ``command``: the command that was run.
    """
    data = result["data"]
    agreement = result["held_out"]["agreement"]
    text = render(
        "next_words.html.j2",
        title=f"{data['source'].rsplit('/', 1)[-1]}: which words attention copies",
        kicker=(
            f"{data['train']:,} training and {data['test']:,} held-out texts · {data['vocabulary']:,} words · contexts "
            f"of at most {data['length']}"
        ),
        verdict=verdict(result),
        notes=list(notes(result)),
        cards=[_card(name, agreement[rule]) for rule, name in RULES.items()],
        sections=[
            _section(done, one, numbers) for one, numbers in zip(done.last_words, result["last_words"], strict=True)
        ],
        tables=list(tables(result)),
        command=command,
        result=result,
    )
    write_page(folder, text, [], result)


def _card(name: str, found: dict[str, Any]) -> tuple[str, str, str]:
    value, _, interval = shown_share(found).partition(" (")
    small = "agreement with trained attention on held-out contexts"
    return name.capitalize(), value, f"95% interval {interval.rstrip(')')}; {small}" if interval else small


def _section(done: NextWords, one: LastWord, numbers: dict[str, Any]) -> dict[str, Any]:
    found, names = numbers["held_out"], done.train.names
    excess = numbers["loss"] - numbers["least_loss"]
    remarks = [
        f"{numbers['label_absent']:,} of the {numbers['contexts']:,} training contexts do not contain their next word "
        "and are left out."
    ]
    if not one.predicted and one.held_out:
        remarks.append(
            f"The graph-SVM is {numbers['status']} with these vectors: no weights keep this order, so there is no "
            "prediction."
        )
    return {
        "name": names[one.number],
        "remarks": remarks,
        "levels": _levels(one, names),
        "links": _links(one),
        "table": [
            ("components, words of the largest", f"{numbers['components']}, {numbers['largest_component']}"),
            ("graph-SVM", f"{numbers['status']}, relative gap {number(numbers['gap'])}"),
            ("finite part", f"{numbers['finite_status']}, norm {number(numbers['finite_norm'])}"),
            ("loss of trained attention, above its limit", f"{number(numbers['loss'])}, {number(excess)}"),
            ("held-out contexts, ordered by the graph", f"{found['contexts']:,}, {found['ordered']:,}"),
            ("distance of trained and predicted shares", number(found["total_variation"])),
        ],
        "columns": ["", "agrees with attention", "is the next word"],
        "rows": [
            ("trained attention", "", shown_share(found["next_word"]["attention"])),
            *(
                (name, shown_share(found["agreement"][rule]), shown_share(found["next_word"][rule]))
                for rule, name in RULES.items()
            ),
        ],
        "examples": [_example(one, names, place) for place in range(min(EXAMPLES, len(one.held_out)))],
    }


def _levels(one: LastWord, names: tuple[str, ...]) -> list[list[dict[str, Any]]]:
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


def _links(one: LastWord) -> list[list[int]]:
    """The orders that are no consequence of others, as pairs of components."""
    covers: list[list[int]] = one.graph.priorities.covers().tolist()
    return covers


def _example(one: LastWord, names: tuple[str, ...], place: int) -> dict[str, Any]:
    context, selected = one.held_out[place], one.selected
    rows = [("trained", one.attention[place])]
    if one.predicted:
        rows.append(("predicted", one.predicted[place]))
    follows = names[selected.next_word[place]]
    return {
        "next": follows,
        "small": "in the context" if selected.contains[place] else "not in the context: cannot be copied",
        "rows": [(name, _shaded(context, shares, names)) for name, shares in rows],
    }


def _shaded(context: np.ndarray, shares: np.ndarray, names: tuple[str, ...]) -> list[Span]:
    largest = float(shares.max())
    spans = []
    for word, share in zip(context.tolist(), shares.tolist(), strict=True):
        spans += [Span(names[word], share, share / largest), Span(" ")]
    return spans
