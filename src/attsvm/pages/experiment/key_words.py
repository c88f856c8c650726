"""The study of key words: how much of the [CLS] query's attention they receive, in short sentences."""

from typing import Any

import numpy as np
from markupsafe import Markup
from scipy import stats

from attsvm.pages.drawn import Drawn
from attsvm.pages.experiment.curves import COLOURS, over_epochs
from attsvm.pages.experiment.history import at_common_steps
from attsvm.pages.experiment.names import name_of
from attsvm.pages.spans import Span, over_steps, shaded
from attsvm.plot import style

MARKERS = "osD^vP"


def draw_share(runs: list[dict[str, Any]]) -> Drawn:
    """The key-word score over the epochs."""
    figure, axis = over_epochs(runs, "key-word score (%)", lambda row: 100 * row["key_word_score"])
    axis.axhline(100 * runs[0]["key_words"]["even"], color=style.INK, linestyle=":", linewidth=1)
    axis.set_ylim(bottom=0)
    caption = (
        "Share of the attention of the last layer's [CLS] query on the words that carry the sentiment, as a mean "
        "over the heads and the sentences below. Dotted: equal attention to all tokens."
    )
    return Drawn("key-words", "Attention to key words", caption, figure)


def draw_sentences(runs: list[dict[str, Any]]) -> Drawn | None:
    """Attention to the key words of every sentence, on its scale from 0 to 1: the first run against the others."""
    if len(runs) < 2:
        return None
    figure, axis = style.panel("key words, other optimiser", f"key words, {name_of(runs[0]['optimizer'])}", 2.9)
    axis.plot([0, 1], [0, 1], color=style.INK, linewidth=0.8)
    first = _key_attention(runs[0])
    for number, run in enumerate(runs[1:], start=1):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        name = name_of(run["optimizer"])
        axis.plot(_key_attention(run), first, marker, color=colour, markersize=3.5, alpha=0.7, mew=0, label=name)
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    style.legend_above(axis, 2)
    caption = (
        "Attention of the last layer's [CLS] query to the key words of each sentence. The row of a sentence, [CLS] and "
        f"[SEP] included, is on the scale from 0 (its smallest entry) to 1 (its largest). {comparisons(runs)}"
    )
    return Drawn("key-word-sentences", "Key words of each sentence", caption, figure)


def comparisons(runs: list[dict[str, Any]]) -> str:
    """In how many sentences the first run gives more attention to key words than each other one, on the scale 0-1."""
    first, name = _key_attention(runs[0]), name_of(runs[0]["optimizer"])
    parts = []
    for run in runs[1:]:
        pairs = list(zip(first, _key_attention(run), strict=True))
        more, fewer = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
        p = stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
        other = name_of(run["optimizer"])
        parts.append(
            f"{name} gives more than {other} in {more} of {len(pairs)} sentences, and less in {fewer} "
            f"(sign test, p = {p:.2g})."
        )
    return " ".join(parts)


def sentences_of(runs: list[dict[str, Any]]) -> list[tuple[str, list[tuple[str, list[Span]]]]]:
    """Of each sentence its label, and for each run a heading and the shaded text."""
    if not runs or "key_words" not in runs[0]:
        return []
    read = [run["key_words"]["sentences"] for run in runs]
    steps, attention = at_common_steps(runs)
    return [
        (
            "positive" if readings[0]["label"] else "negative",
            [
                (
                    f"{name_of(run['optimizer'])}: positive {reading['probability']:.0%}",
                    shaded(
                        reading["text"],
                        reading["pieces"],
                        opacities=reading["scaled"],
                        over=_of_slider([found[number] for found in at_steps]) if len(steps) > 1 else None,
                    ),
                )
                for run, reading, at_steps in zip(runs, readings, attention, strict=True)
            ],
        )
        for number, readings in enumerate(zip(*read, strict=True))
    ]


def _of_slider(records: list[dict[str, list[float]]]) -> list[Markup]:
    """For each word of a sentence what the slider needs, from the records of its attention."""
    scaled, shares = (np.array([record[name] for record in records]) for name in ("scaled", "shares"))
    return over_steps(scaled, shares)


def _key_attention(run: dict[str, Any]) -> list[float]:
    return [sentence["key_scaled"] for sentence in run["key_words"]["sentences"]]
