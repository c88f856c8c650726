"""Attention of one sequence as a square of cells, which ``squares.html.j2`` shows."""

import csv
import io
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.pages.over_steps import over as of_slider

WIDEST = 48
"""Most tokens of a sequence whose attention is drawn as a square."""

Square = list[tuple[str, list[dict[str, Any] | None]]]
"""For each query its token, and a cell for each token; None where it is masked."""


def attention_square(
    names: list[str],
    positions: Int[np.ndarray, " Q"],
    probabilities: Float[np.ndarray, "Q T"],
    allowed: Bool[np.ndarray, "Q T"],
    selected: Int[np.ndarray, " Q"],
    support: Bool[np.ndarray, "Q T"] | None = None,
    over: Float[np.ndarray, "R Q T"] | None = None,
) -> tuple[list[str], Square]:
    """The tokens that some query may attend to, and the cells.

    ``names``: of the T tokens. ``positions``: of the queries; −1 where there is none. ``selected``: the token that each
    query selects. ``support``: support tokens, which get a dot. ``over``: the probabilities at the steps of a slider.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.pages.squares import attention_square
    >>> shares, mask = np.array([[0.25, 0.75]]), np.array([[True, True]])
    >>> columns, [(query, cells)] = attention_square(["a", "b"], np.array([1]), shares, mask, np.array([1]))
    >>> columns, query, cells[1]["chosen"], cells[0]["probability"]
    (['a', 'b'], 'b', True, 0.25)
    """
    present = np.flatnonzero(allowed.any(axis=0))
    rows: Square = []
    for q, place in enumerate(positions):
        if place < 0:
            continue
        cells = [
            {
                "token": names[t],
                "probability": float(probabilities[q, t]),
                "chosen": bool(t == selected[q]),
                "support": support is not None and bool(support[q, t]),
                "over": "" if over is None else of_slider(over[:, q, t].tolist()),
            }
            if allowed[q, t]
            else None
            for t in present
        ]
        rows.append((names[place], cells))
    return [names[t] for t in present], rows


def square_table(rows: Square) -> str:
    """The cells as CSV: query, token and probability; masked tokens are left out.

    Examples
    --------
    >>> from attsvm.pages.squares import square_table
    >>> print(square_table([("b", [{"token": "a", "probability": 0.25}, None])]), end="")
    query,token,probability
    b,a,0.25
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["query", "token", "probability"])
    writer.writerows((query, one["token"], one["probability"]) for query, cells in rows for one in cells if one)
    return stream.getvalue()
