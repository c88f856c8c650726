"""The heads of a model by the smallest edit that makes them attend to given targets."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float, Int, Shaped
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.edits.edit import make_edit
from attsvm.inspect.edits.targets import Request
from attsvm.inspect.weights import check_head

SHOWN = 10
"""Heads that the text of a scan shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """Attention heads, ordered by the norm of the smallest edit; infeasible ones come last.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    layer, head : int ndarray, shape (heads,)
    status : ndarray of str, shape (heads,)
    value : ndarray, shape (heads,)
        The norm of the smallest edit, as ``Edit.value``.
    gap : ndarray, shape (heads,)
    before : ndarray, shape (heads,)
        The share of targets that the head selects without an edit; NaN when tokens are forgotten.
    leave_one_out : ndarray, shape (heads,)
        As :meth:`Edit.leave_one_out`; NaN where it is not defined or was not requested.

    See Also
    --------
    attsvm.inspect.Inspection.scan : Makes one.

    Notes
    -----
    A small norm shows that a head nearly does what is asked. Targets without a rule can have a smallest edit, too: its
    norm grows with the number of sequences, and its leave-one-out success is that of chance.
    """

    layer: Int[np.ndarray, " heads"]
    head: Int[np.ndarray, " heads"]
    status: Shaped[np.ndarray, " heads"]
    value: Float[np.ndarray, " heads"]
    gap: Float[np.ndarray, " heads"]
    before: Float[np.ndarray, " heads"]
    leave_one_out: Float[np.ndarray, " heads"]

    def __repr__(self) -> str:
        known = not np.isnan(self.leave_one_out).all()
        lines = [f"Scan({len(self.head)} heads)", "  head   least norm  before" + "  leave-one-out" * known]
        for row in zip(self.layer, self.head, self.value, self.before, self.leave_one_out, strict=True):
            layer, head, value, before, right = row
            lines.append(f"{f'{layer}.{head}':>6}{value:13.4g}{before:8.2f}" + f"{right:15.2f}" * known)
        return "\n".join(lines[: SHOWN + 2])


def scan_heads(
    source: ModelAndBatch,
    request: Request,
    keep: ModelAndBatch | None,
    heads: Collection[tuple[int, int]] | None,
    leave_one_out: bool,
) -> Scan:
    """The edits of all heads, or of some; see :meth:`attsvm.inspect.Inspection.scan`."""
    if heads is not None and not len(heads):
        raise ProblemError("heads: expected at least one head, got none")
    indices = sorted({layer for layer, _ in heads}) if heads is not None else list(range(len(source.layers)))
    unknown = [layer for layer in indices if not 0 <= layer < len(source.layers)]
    if unknown:
        raise ProblemError(f"heads: expected layers below {len(source.layers)}, got {unknown[0]}")
    kept = None if keep is None else keep.layers_at(indices)
    rows = []
    for index, captured in source.layers_at(indices):
        unrelated = None if kept is None else next((layer for k, layer in kept if k == index), None)
        if keep is not None and unrelated is None:
            raise keep.not_run(index)
        chosen = range(captured.num_heads) if heads is None else sorted(h for layer, h in heads if layer == index)
        for head in chosen:
            check_head(index, head, captured)
            edit = make_edit(source, captured, index, head, request, keep, unrelated)
            right = edit.leave_one_out() if leave_one_out else None
            before = np.nan if request.forget is not None else edit.solved.before(len(edit.targets))
            rows.append((index, head, edit.status, edit.value, edit.gap, before, np.nan if right is None else right))
    idle = [index for index in indices if heads is not None and not source.runs(index)]
    if idle:
        raise source.not_run(idle[0])
    rows.sort(key=lambda row: row[3])
    return Scan(*(np.array(column) for column in zip(*rows, strict=True)))
