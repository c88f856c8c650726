"""The figures of a fit to bags."""

from typing import TYPE_CHECKING

from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import Shown
from attsvm.plot import style

if TYPE_CHECKING:
    from attsvm._fit import BagFit


def draw_bags(fit: "BagFit") -> list[Shown]:
    """Draw learning, and how attention concentrates."""
    return draw_each({"learning": _learning, "concentration": _concentration}, fit)


def _learning(fit: "BagFit") -> DrawnFigure:
    history = fit.classifier.history_
    held_out = "validation_loss" in history
    figure, axis = style.panel("steps", "loss", 2.6)
    # before the first step there is no objective
    axis.plot(history["steps"][1:], history["objective"][1:], color=style.BLUE, label="training")
    if held_out:
        axis.plot(history["steps"], history["validation_loss"], color=style.VERMILLION, ls="--", label="validation")
    axis.axvline(fit.classifier.kept_step_, color=style.INK, linestyle=":", linewidth=1, label="kept")
    style.legend_above(axis, 3)
    what = "Only the loss of training includes the penalty." if held_out else "No bags were held out for validation."
    return DrawnFigure("Learning", f"Loss of attention and prediction head alone during training. {what}", figure)


def _concentration(fit: "BagFit") -> DrawnFigure | None:
    history = fit.classifier.history_
    if "effective_median" not in history:
        return None
    figure, axis = style.panel("steps", "effective number of tokens", 2.6)
    style.band(axis, history["steps"], history["effective_low"], history["effective_high"], style.BLUE, "10-90%")
    axis.plot(history["steps"], history["effective_median"], color=style.BLUE, label="median")
    axis.axvline(fit.classifier.kept_step_, color=style.INK, linestyle=":", linewidth=1, label="kept")
    axis.set_ylim(bottom=0)
    style.legend_above(axis, 3)
    caption = (
        "Effective number of tokens, exp(−Σ a log a), in the validation bags or a sample of the training bags: how "
        "many tokens share the attention, not what they contribute to a decision."
    )
    return DrawnFigure("Concentration of attention", caption, figure)
