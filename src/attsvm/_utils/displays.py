"""How problems and results are shown: a plot for each kind, and a summary in notebooks."""

import contextlib
from collections.abc import Iterable
from html import escape
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError

PLOTS = {
    "inspection": "attsvm.plot.inspection:inspection",
    "margin profile": "attsvm.plot.profile:profile",
    "path": "attsvm.plot.path:regularization_path",
    "penalty path": "attsvm.plot.path:penalty_path",
    "prediction": "attsvm.plot.solution:prediction",
    "problem": "attsvm.plot.problem:problem",
    "run": "attsvm.plot.runs:run",
    "solution": "attsvm.plot.solution:solution",
    "stack run": "attsvm.plot.layers:stack_run",
}
"""Where the plot of each kind of object is: a function of the object, of options, and of ``ax``."""

MOST_BIASES = 6
"""How many of the biases are in a line about a result."""


class Displayed:
    """What has a summary in notebooks, with a small figure if its ``kind`` has a plot in :data:`PLOTS`."""

    kind: ClassVar[str]

    @classmethod
    def _kind(cls) -> str:
        return cls.kind

    def _drawn(self, *args: Any, **options: Any) -> Any:
        """The axes of the plot of this kind, for the method ``plot`` of a class that has one."""
        draw: Any = import_object(PLOTS[self._kind()])
        return draw(self, *args, **options)

    def _rows(self) -> Iterable[tuple[str, str]]:
        """Names and values of the summary."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        cell = "text-align: left; padding: .15em .8em .15em 0; vertical-align: top"
        rows = "".join(
            f'<tr><th style="{cell}; font-weight: 400; opacity: .7">{escape(name)}</th>'
            f'<td style="{cell}">{escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        table = f'<table style="border-collapse: collapse; margin: 0"><caption style="{cell}">'
        table += f"<b>{escape(type(self).__name__)}</b></caption>{rows}</table>"
        small_figure: Any = import_object("attsvm.plot.canvas:small_figure")
        figure = ""
        if self._kind() in PLOTS:
            with contextlib.suppress(ProblemError):  # there may be nothing to draw
                figure = small_figure(self)
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1.5em; align-items: center">{table}{figure}</div>'


def summary_of(value: np.ndarray, batch_shape: tuple[int, ...]) -> str:
    """Return a number or a word; of a batch the median and the range, or the counts; of another array its shape."""
    if value.shape != batch_shape:
        return f"array of shape {value.shape}"
    if value.dtype.kind in "UO":
        words, counts = np.unique(value.astype(str), return_counts=True)
        return (
            str(value)
            if not batch_shape
            else ", ".join(f"{count} {word}" for word, count in zip(words, counts, strict=True))
        )
    if value.dtype.kind == "b":
        return f"{value.mean():.0%}" if batch_shape else ("yes" if value else "no")
    if not batch_shape:
        return f"{value.item():,}" if value.dtype.kind in "iu" else f"{value.item():z.6g}"
    # a step or an index of -1 is none
    known = value[value >= 0] if value.dtype.kind == "i" else value[np.isfinite(value)]
    if not known.size:
        return "none"
    said = f"median {np.median(known):z.6g} ({known.min():z.6g} to {known.max():z.6g})"
    return said if known.size == value.size else f"{said}; {value.size - known.size} without"


def blocks_in_words(weights: np.ndarray, num_biases: int) -> list[str]:
    """The length of W and the first biases b of block-diagonal weights; nothing without biases or for several heads."""
    if not num_biases or weights.ndim > 2:
        return []
    W, b = weights[:-num_biases, :-1], weights[-num_biases:, -1]
    first = [f"{x:.4g}" for x in b[:MOST_BIASES]] + ["..."] * (num_biases > MOST_BIASES)
    return [f"‖W‖_F = {np.linalg.norm(W):.4g}, b = ({', '.join(first)})"]
