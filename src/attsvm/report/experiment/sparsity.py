"""The figure of attention that grows sparse, while the key-query weights grow."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attsvm.plot import style
from attsvm.report.drawn import Drawn
from attsvm.report.experiment.names import name_of


def class_evenness(row: dict[str, Any]) -> list[float]:
    """‖a‖₁²/(T‖a‖₂²) of the class token's attention in each layer, from a row of a history."""
    found: list[float] = row["attention_evenness"]["class"]
    return found


def draw_sparsity(runs: list[dict[str, Any]]) -> Drawn:
    """Evenness of the class token's attention and ‖W_K W_Q′‖ over the epochs, for each layer and on average."""
    figure = Figure(figsize=(2 * style.WIDTH, 3.6))
    axes = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False)
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
                axis.plot(epochs, values[:, layer], color=colour, linewidth=0.9, label=f"layer {layer + 1}")
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
    return Drawn("sparsity", "Attention and key-query weights of each layer", caption, figure)


def _change(run: dict[str, Any]) -> str:
    first, last = run["history"][0], run["history"][-1]
    pairs = ((np.mean(class_evenness(row)), np.mean(row["key_query_norm"])) for row in (first, last))
    (even, norm), (even_now, norm_now) = pairs
    return f"{even:.2f} → {even_now:.2f} and {norm:.2f} → {norm_now:.2f}"
