"""The figures of an experiment: learning, weights and attention of each optimiser."""

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attsvm.pages.experiment import at_common_steps, by_attention, comparisons, key_attention, name_of
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.over_steps import at_step
from attsvm.pages.page import Shown
from attsvm.plot import DATA, style

COLOURS = (style.VERMILLION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))
MARKERS = "osD^vP"
KIND_NAMES = {"key": "keys", "query": "queries", "value": "values"}


def draw_experiment(result: dict[str, Any], pictures: np.ndarray | None = None) -> list[Shown]:
    """Draw every figure that applies to the runs.

    ``result``: ``result.json``. ``pictures``: shape (n, height, width, 3), the first test pictures; attention is drawn
    beside them.
    """
    runs, shown = by_attention(result["runs"])
    drawers = {
        "accuracy": _learning,
        "loss": _loss,
        "histograms": _histograms,
        "attention": _evenness,
        "norms": _norms,
        "sparsity": draw_sparsity,
    }
    drawn = draw_each(drawers, runs)
    if shown and "key_words" in shown[0]:
        drawn += draw_each({"key-words": _share, "key-word-sentences": _sentences}, shown)
    if shown and pictures is not None:
        drawn += draw_each({"pictures": _pictures}, shown, pictures)
    return drawn


def _learning(runs: list[dict[str, Any]]) -> DrawnFigure:
    figure, _ = over_epochs(runs, "test accuracy (%)", lambda row: 100 * row["test_accuracy"])
    return DrawnFigure("Accuracy", "Share of the test rows classified correctly after each epoch.", figure)


def _loss(runs: list[dict[str, Any]]) -> DrawnFigure:
    figure, axis = over_epochs(runs, "mean loss of a row", lambda row: row["test_loss"])
    for number, run in enumerate(runs):
        trained = run["history"][1:]
        if trained:
            axis.plot(
                [row["epoch"] for row in trained],
                [row["train_loss"] for row in trained],
                color=COLOURS[number % len(COLOURS)],
                linewidth=0.7,
                marker=".",
                markersize=3,
            )
    caption = "Thick: on the test rows. Thin, with dots: on the training rows during training, with dropout."
    return DrawnFigure("Loss", caption, figure)


def _histograms(runs: list[dict[str, Any]]) -> DrawnFigure:
    columns = len(runs)
    figure = Figure(figsize=(2 * style.WIDTH, 0.5 + 1.25 * len(KIND_NAMES)))
    axes = figure.subplots(len(KIND_NAMES), columns, sharex=True, sharey="row", squeeze=False, subplot_kw=DATA)
    for column, run in enumerate(runs):
        edges = np.array(run["edges"])
        for line, (kind, name) in enumerate(KIND_NAMES.items()):
            axis = axes[line, column]
            axis.stairs(100 * np.array(run["histograms"][kind]), edges, fill=True, color=COLOURS[column % len(COLOURS)])
            axis.set_xscale("log")
            axis.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1])
            if column == 0:
                axis.set_ylabel(f"{name} (%)")
        axes[0, column].set_title(name_of(run["optimizer"]))
        axes[-1, column].set_xlabel("|weight|")
    caption = (
        "Share of the key, query and value weights of all layers, by size. Weights below 1e-8, including zeros, are "
        "in the first bin."
    )
    return DrawnFigure("Sizes of weights", caption, figure)


def _evenness(runs: list[dict[str, Any]]) -> DrawnFigure:
    figure, _ = over_epochs(runs, "‖a‖₁² / (T ‖a‖₂²)", lambda row: float(np.mean(row["attention_evenness"]["all"])))
    caption = (
        "Mean over layers, heads and queries of the test rows. It is 1 if a query attends to all T tokens equally "
        "and 1/T if it attends to one token; small values are sparse."
    )
    return DrawnFigure("Sparsity of attention", caption, figure)


def _norms(runs: list[dict[str, Any]]) -> DrawnFigure:
    figure, _ = over_epochs(runs, "‖W_K W_Q′‖", lambda row: float(np.mean(row["key_query_norm"])))
    caption = "Frobenius norm of the key-query weights, mean over heads and layers."
    return DrawnFigure("Growth of the key-query weights", caption, figure)


def _pictures(runs: list[dict[str, Any]], pictures: np.ndarray) -> DrawnFigure:
    shown = len(runs[0]["pictures"])
    figure = Figure(figsize=(2 * style.WIDTH, 1.15 * (1 + len(runs))))
    axes = figure.subplots(1 + len(runs), shown, squeeze=False, subplot_kw=DATA)
    steps, attention = at_common_steps(runs)
    for column in range(shown):
        _picture(axes[0, column], pictures[column])
        axes[0, column].set_title(runs[0]["pictures"][column]["label"])
        for line, run in enumerate(runs, start=1):
            axis, found = axes[line, column], run["pictures"][column]
            # in three equal colours, which are grey
            _picture(axis, np.repeat(pictures[column].mean(-1, keepdims=True).astype(np.uint8), 3, axis=-1), alpha=0.5)
            # a layer for each step of the slider; the last one is shown
            for k, record in enumerate(attention[line - 1]):
                axis.imshow(
                    np.array(found["attention"] if k == len(steps) - 1 else record[column]),
                    extent=(0, pictures.shape[2], pictures.shape[1], 0),
                    cmap="inferno",
                    alpha=0.6,
                    visible=k == len(steps) - 1,
                    interpolation="none",  # matplotlib joins images otherwise
                    label="attention",
                ).set_gid(at_step(steps[k], f"{line}-{column}"))
            axis.set_title(found["predicted"], fontsize=7)
    for line, run in enumerate(runs, start=1):
        axes[line, 0].set_ylabel(name_of(run["optimizer"]), fontsize=7)
    caption = (
        "Test pictures with their class, and the attention of the last layer's class token (mean over heads) with the "
        "prediction of the model. Dark is the smallest attention of the picture, bright the largest."
    )
    if len(steps) > 1:
        caption += " The slider shows the attention at earlier steps; the predictions are from the end of training."
    return DrawnFigure("What the class token attends to", caption, figure)


def _picture(axis: Axes, picture: np.ndarray, **options: Any) -> None:
    # as many pixels as the picture has; with interpolation the page has one for each pixel of a print
    axis.imshow(picture, extent=(0, picture.shape[1], picture.shape[0], 0), interpolation="none", **options)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)


def class_evenness(row: dict[str, Any]) -> list[float]:
    """‖a‖₁²/(T‖a‖₂²) of the class token's attention in each layer, from a row of a history."""
    found: list[float] = row["attention_evenness"]["class"]
    return found


def draw_sparsity(runs: list[dict[str, Any]]) -> DrawnFigure:
    """Evenness of the class token's attention and ‖W_K W_Q′‖ over the epochs, for each layer and on average."""
    figure = Figure(figsize=(2 * style.WIDTH, 3.6))
    axes = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False, subplot_kw=DATA)
    for column, run in enumerate(runs):
        epochs = [row["epoch"] for row in run["history"]]
        quantities = (
            [class_evenness(row) for row in run["history"]],
            [row["key_query_norm"] for row in run["history"]],
        )
        for axis, values in zip(axes[:, column], map(np.array, quantities), strict=True):
            layers = values.shape[1]
            colours = mpl.colormaps["viridis"](np.linspace(0.35, 0.8, layers))
            for layer, colour in enumerate(colours):
                axis.plot(epochs, values[:, layer], color=colour, linewidth=0.9, label=f"layer {layer}")
            axis.plot(epochs, values.mean(axis=1), color=style.INK, linewidth=1.8, label="mean")
        axes[0, column].set_title(name_of(run["optimizer"]))
        axes[-1, column].set_xlabel("epochs")
        axes[-1, column].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("‖a‖₁² / (T ‖a‖₂²)")
    axes[1, 0].set_ylabel("‖W_K W_Q′‖")
    axes[0, 0].set_ylim(0, 1.02)
    axes[1, 0].set_ylim(bottom=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=7)
    changes = "; ".join(f"{name_of(run['optimizer'])} {_change(run)}" for run in runs)
    caption = (
        "Above: how evenly the class token attends, mean over heads and test rows; 1 is even, 1/T is one token. Below: "
        f"Frobenius norm of the key-query weights, mean over heads. From the first to the last epoch, mean: {changes}."
    )
    return DrawnFigure("Attention and key-query weights of each layer", caption, figure)


def _change(run: dict[str, Any]) -> str:
    first, last = run["history"][0], run["history"][-1]
    pairs = ((np.mean(class_evenness(row)), np.mean(row["key_query_norm"])) for row in (first, last))
    (even, norm), (even_now, norm_now) = pairs
    return f"{even:.2f} → {even_now:.2f} and {norm:.2f} → {norm_now:.2f}"


def over_epochs(runs: list[dict[str, Any]], name: str, value: Callable[[dict[str, Any]], float]) -> tuple[Figure, Axes]:
    """One line for each run: the value of each row of its history."""
    figure, axis = style.panel("epochs", name, 2.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    for number, run in enumerate(runs):
        axis.plot(
            [row["epoch"] for row in run["history"]],
            [value(row) for row in run["history"]],
            color=COLOURS[number % len(COLOURS)],
            linestyle=LINES[number % len(LINES)],
            label=name_of(run["optimizer"]),
        )
    style.legend_above(axis, 2)
    return figure, axis


def _share(runs: list[dict[str, Any]]) -> DrawnFigure:
    """The key-word score over the epochs."""
    figure, axis = over_epochs(runs, "key-word score (%)", lambda row: 100 * row["key_word_score"])
    axis.axhline(100 * runs[0]["key_words"]["even"], color=style.INK, linestyle=":", linewidth=1)
    axis.set_ylim(bottom=0)
    caption = (
        "Share of the attention of the last layer's [CLS] query on the words that carry the sentiment, as a mean "
        "over the heads and the sentences below. Dotted: equal attention to all tokens."
    )
    return DrawnFigure("Attention to key words", caption, figure)


def _sentences(runs: list[dict[str, Any]]) -> DrawnFigure | None:
    """Attention to the key words of every sentence, on its scale from 0 to 1: the first run against the others."""
    if len(runs) < 2:
        return None
    figure, axis = style.panel("key words, other optimiser", f"key words, {name_of(runs[0]['optimizer'])}", 2.9)
    axis.plot([0, 1], [0, 1], color=style.INK, linewidth=0.8)
    first = key_attention(runs[0])
    for number, run in enumerate(runs[1:], start=1):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        name = name_of(run["optimizer"])
        axis.plot(key_attention(run), first, marker, color=colour, markersize=3.5, alpha=0.7, mew=0, label=name)
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    style.legend_above(axis, 2)
    caption = (
        "Attention of the last layer's [CLS] query to the key words of each sentence. The row of a sentence, [CLS] and "
        f"[SEP] included, is on the scale from 0 (its smallest entry) to 1 (its largest). {comparisons(runs)}"
    )
    return DrawnFigure("Key words of each sentence", caption, figure)
