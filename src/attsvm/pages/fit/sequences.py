"""The attention of single sequences over the steps of a fit, as a table of cells."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from attsvm._fit.evaluation import problem_labels
from attsvm._fit.history import recorded_attention
from attsvm._fit.result import Fit
from attsvm.pages.figure_data import file_links
from attsvm.pages.over_steps import slider
from attsvm.pages.squares import WIDEST, attention_square

ROWS = 12
"""Most queries that are shown."""


def single_sequences(fit: Fit, classes: Sequence[Any] | None = None) -> dict[str, Any] | None:
    """Show the first queries of the test sequences, or of the training sequences if there are none.

    ``classes``: names of the labels +1 and −1.

    Returns ``columns`` and ``rows`` for ``squares.html.j2``, ``slider`` and ``links``; None if sequences are too long.
    """
    part, name = (fit.train, "training") if fit.test is None else (fit.test, "test")
    if part.num_tokens > WIDEST:
        return None
    n, Q = np.nonzero(part.canonical.active)
    n, Q = n[:ROWS], Q[:ROWS]
    numbers, of = np.unique(n, return_inverse=True)
    steps, attention = recorded_attention(fit.run, part, numbers)
    shares, allowed = attention[:, of, Q], part.canonical.allowed[n, Q]
    labels = problem_labels(part)[n, Q]
    positive, negative = classes or ("+1", "−1")
    names = [f"{i + 1}{f', query {q + 1}' if part.has_query_axis else ''}" for i, q in zip(n, Q, strict=True)]
    columns, rows = attention_square(
        [str(t + 1) for t in range(part.num_tokens)],
        np.zeros(len(n), dtype=int),
        shares[-1],
        allowed,
        shares[-1].argmax(axis=-1),
        over=shares,
    )
    return {
        "part": name,
        "columns": columns,
        "rows": [
            (f"{name} ({positive if label > 0 else negative})", cells)
            for name, label, (_, cells) in zip(names, labels, rows, strict=True)
        ],
        "slider": slider(steps.tolist()) if len(steps) > 1 else "",
        "links": file_links("sequences", _table(steps, names, shares, allowed)),
    }


def _table(steps: np.ndarray, names: list[str], shares: np.ndarray, allowed: np.ndarray) -> str:
    """As CSV: step, sequence, token and attention."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["step", "sequence", "token", "attention"])
    for step, at_step in zip(steps, shares, strict=True):
        writer.writerows((step, names[i], t + 1, at_step[i, t]) for i, t in np.argwhere(allowed))
    return stream.getvalue()
