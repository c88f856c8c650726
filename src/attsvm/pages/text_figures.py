"""The figures of a fit on texts."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from attsvm._utils.text import as_label
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Shown
from attsvm.pages.words import number_of_words
from attsvm.plot import style

if TYPE_CHECKING:
    from attsvm._fit import TextFit

FEW = 500
"""Up to this many points are drawn larger, and as shapes, not as an image."""

LOWEST = 1e-6
"""Attention over frequency below this is drawn here."""

NAMED = 24
"""Most words that are named in the figure of all words."""


def draw_text(fit: "TextFit") -> list[Shown]:
    """Draw words, effective number of words, how attention concentrates, and learning."""
    drawers = {"words": _words, "effective": _effective, "concentration": _concentration, "learning": _learning}
    return draw_each(drawers, fit)


def _words(fit: "TextFit") -> DrawnFigure | None:
    """Every listed word: its frequency, and its attention over its frequency. None if no word is listed."""
    words, listed = fit.words, fit.listed
    if not len(listed):
        return None
    figure, axis = style.panel("share of a text's words", "attention over frequency", 3.4, columns=2, log=True)
    # attention that is saturated leaves nothing to many words, and a logarithmic axis cannot show 0
    frequency, ratio = words.frequency[listed], np.maximum(words.over_frequency[listed], LOWEST)
    favoured = words.by_class[listed].argmax(axis=1)
    colours = (style.VERMILLION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)
    size, opacity = (4, 0.35) if len(listed) > FEW else (14, 0.8)
    for number, name in enumerate(fit.classes[: len(colours)]):
        of_class = favoured == number
        axis.scatter(
            frequency[of_class],
            ratio[of_class],
            s=size,
            color=colours[number],
            marker="o^sDvP"[number],
            alpha=opacity,
            linewidths=0,
            label=f"mostly in “{as_label(name)}”",
            rasterized=len(listed) > FEW,  # an image does not follow the colours of the page
        )
    axis.axhline(1, color=style.INK, linestyle=":", linewidth=1)
    _name_apart(axis, np.log(frequency), np.log(ratio), [fit.encoder.vocabulary[word] for word in listed])
    style.legend_above(axis, min(len(fit.classes), 3))
    legend = axis.get_legend()
    for handle in legend.legend_handles if legend else ():
        if isinstance(handle, PathCollection):
            handle.set_sizes([18])
            handle.set_alpha(0.9)
    caption = (
        f"{len(listed):,} words that occur in at least {fit.listed_from} of the {len(fit.test.texts):,} test texts. "
        "Words above the dotted line receive more attention than their share of the text, words below it less."
    )
    if ratio.min() <= LOWEST:
        caption += f" Words below {LOWEST:g} are drawn there."
    return DrawnFigure("Which words receive attention", caption, figure)


def _name_apart(axis: Axes, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Name the most extreme words whose names do not overlap."""
    if not len(x):
        return
    spread = np.maximum([np.ptp(x), np.ptp(y)], 1e-9)
    place = np.stack([x, y], axis=1) / spread
    # extremes first: the most and the least attended, and the most frequent
    order = np.argsort(-np.abs(place[:, 1] - np.median(place[:, 1])) - 0.3 * (place[:, 0] - place[:, 0].min()))
    written: list[np.ndarray] = []
    for word in order:
        apart = [np.abs(place[word] - other) for other in written]
        if all(across > 0.11 or up > 0.045 for across, up in apart):
            axis.annotate(
                as_label(names[word]),
                (np.exp(x[word]), np.exp(y[word])),
                (2, 1),
                textcoords="offset points",
                fontsize=6,
            )
            written.append(place[word])
        if len(written) == NAMED:
            break


def _effective(fit: "TextFit") -> DrawnFigure:
    figure, axis = style.panel("words of the text that are read", "effective number of words", 2.6)
    lengths, effective = fit.test.sequences.lengths, fit.test.effective
    shown = np.random.default_rng(0).permutation(len(lengths))[:3000]
    few = len(shown) <= FEW
    size, opacity = (8, 0.7) if few else (3, 0.3)
    axis.scatter(
        lengths[shown], effective[shown], s=size, color=style.BLUE, alpha=opacity, linewidths=0, rasterized=not few
    )
    longest = lengths.max()
    axis.plot([0, longest], [0, longest], color=style.INK, linestyle=":", linewidth=1)
    axis.axhline(np.median(effective), color=style.VERMILLION, linestyle="--", linewidth=1)
    axis.set_xlim(0, longest * 1.03)
    axis.set_ylim(0, longest * 1.03)
    caption = (
        f"One point per test text{' (3,000 of them)' if len(lengths) > 3000 else ''}. Dotted: equal attention to all "
        f"words. Dashed: the median, {number_of_words(float(np.median(effective)))}."
    )
    return DrawnFigure("Effective number of words", caption, figure)


def _concentration(fit: "TextFit") -> DrawnFigure:
    figure, axis = style.panel("steps", "effective number of words", 2.6)
    history = fit.classifier.attention_.history_
    style.band(axis, history["steps"], history["effective_low"], history["effective_high"], style.BLUE, "10-90%")
    axis.plot(history["steps"], history["effective_median"], color=style.BLUE, label="median")
    axis.axvline(fit.classifier.attention_.kept_step_, color=style.INK, linestyle=":", linewidth=1, label="kept")
    axis.set_ylim(bottom=0)
    style.legend_above(axis, 3)
    caption = "Effective number of words in a sample of the training texts, during training."
    return DrawnFigure("Concentration of attention", caption, figure)


def _learning(fit: "TextFit") -> DrawnFigure:
    figure, axis = style.panel("steps", "accuracy", 2.6)
    history = fit.classifier.attention_.history_
    held_out = "validation_accuracy" in history
    name = "validation_accuracy" if held_out else "objective"
    axis.plot(history["steps"], history[name], color=style.BLUE, label="validation" if held_out else "objective")
    lines = [("mean token, test", fit.mean_token["test"], style.INK, ":")]
    if fit.test.report.ngrams is not None:
        lines.append(("n-grams, test", fit.test.report.ngrams.accuracy, style.VERMILLION, "--"))
    for label, accuracy, colour, dashes in lines:
        axis.axhline(accuracy, color=colour, linestyle=dashes, linewidth=1, label=label)
    style.legend_above(axis, 2)
    caption = "Accuracy of attention alone on validation texts, which are held out from the training texts."
    return DrawnFigure("Learning", caption, figure)
