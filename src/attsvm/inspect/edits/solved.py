"""The smallest change of a head for targets, or for tokens to forget."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.inspect.edits.head import EditedHead, EditMetric, Pairs
from attsvm.inspect.edits.rows import EditRows, WeightChange, least_change, solve_unit_rows
from attsvm.inspect.edits.targets import Ids, Request, find_forgotten
from attsvm.results import Status

MOST_SELECTIONS = 10
"""Limit for how often the token that replaces a forgotten one is chosen anew."""

LEAST_LEAD = 1e-3
"""Preserved selections keep this lead, or a smaller one that they have; float32 rounds logits to about 1e-5."""


@dataclass(frozen=True, eq=False)
class Solved:
    """The rows of an edit in the coordinates in which it was solved, and the change."""

    rows: EditRows  # those of the targets, then those that are preserved
    change: WeightChange
    target: Int[np.ndarray, " m"]  # which target each row is of, −1 for what is preserved
    present: Float[np.ndarray, " m"]  # the leads before the change

    def shares(self, count: int) -> Float[np.ndarray, " m"]:
        """The multipliers of each target, divided by their sum."""
        multipliers = self.change.multipliers
        total = np.bincount(self.target[self.target >= 0], multipliers[self.target >= 0], minlength=count)
        return np.asarray(total / (multipliers.sum() or 1.0))

    def before(self, count: int) -> float:
        """The share of targets whose tokens lead all others already."""
        return (count - _missed(self.target, self.present)) / count

    def leave_one_out(self, targets: Int[np.ndarray, "m 3"]) -> float | None:
        """See :meth:`Edit.leave_one_out`."""
        sequences = np.unique(targets[:, 0])
        if self.change.status == Status.INFEASIBLE or len(sequences) < 2:
            return None
        # what is preserved takes part as far as it has a multiplier
        needed = np.flatnonzero((self.target >= 0) | (self.change.multipliers > 0))
        rows, target, present = self.rows[needed], self.target[needed], self.present[needed]
        gram, missed = rows.gram(), 0
        of_row = np.where(target >= 0, targets[target, 0], -1)
        for sequence in sequences:
            own, weights = of_row == sequence, self.change.weights
            if self.change.multipliers[needed][own].any():  # without one the optimum remains
                left = np.flatnonzero(~own & rows.there)
                some = rows[left]
                weights = WeightChange.of(some, solve_unit_rows(some, gram[np.ix_(left, left)])).weights
            missed += _missed(target[own], (present + rows.norms * rows.apply(weights))[own])
        return (len(targets) - missed) / len(targets)


def _missed(target: Int[np.ndarray, " m"], leads: Float[np.ndarray, " m"]) -> int:
    """How many targets have a lead that is not positive."""
    return len(np.unique(target[(target >= 0) & (leads <= 0)]))


def solve_targets(
    edited: EditedHead,
    at: Int[np.ndarray, "m 3"],
    forgotten: np.ndarray | None,
    request: Request,
    metric: EditMetric | None,
    unrelated: EditedHead | None,
) -> Solved:
    """Solve for the change after which tokens lead all others of their queries, or the forgotten ones.

    ``at``: sequence, column of the query, and token.
    """
    sequence, column, chosen = at.T
    others = edited.layer.allowed[sequence, column]
    if forgotten is not None:
        others &= forgotten[sequence]
    np.put_along_axis(others, chosen[:, None], False, axis=1)
    target, other = np.nonzero(others)
    if len(target) == 0:
        raise ProblemError("targets: expected queries that may attend to several tokens, got none")
    pairs = Pairs(sequence[target], column[target], chosen[target], other)
    present = edited.margins(pairs)
    # with a lead of log(c p/(1 − p)) over each of c others, the softmax gives a probability of p
    count, p = others.sum(axis=1)[target], request.probability
    odds = p / (1 - p) if forgotten is None else (1 - p) / p
    rows = edited.rows(pairs, np.log(count * odds) - present)
    if request.preserve is not None and unrelated is not None:
        own = edited.layer.positions >= 0
        own[sequence, column] = False
        for head, queries in ((edited, own), (unrelated, unrelated.layer.positions >= 0)):
            more, leads = _preserved(head, queries, request.preserve, rows.query.max() + 1)
            rows, present = rows.joined(more), np.concatenate([present, leads])
        target = np.concatenate([target, np.full(len(rows) - len(target), -1)])
    if metric is not None:
        rows = metric.whitened(rows)
    return Solved(rows, least_change(rows), target, present)


def _preserved(
    head: EditedHead, queries: np.ndarray, share: float, first: int
) -> tuple[EditRows, Float[np.ndarray, " m"]]:
    """Rows that keep a share of each lead of the selected tokens of some queries, and these leads.

    ``first``: the number of the first query among the rows.
    """
    chosen = head.logits.argmax(axis=-1)
    others = head.layer.allowed & queries[..., None]
    np.put_along_axis(others, chosen[..., None], False, axis=-1)
    sequence, column, other = np.nonzero(others)
    pairs = Pairs(sequence, column, chosen[sequence, column], other)
    leads = head.margins(pairs)
    # a lead of 0 would be a tie, which rounding decides
    rows = head.rows(pairs, np.maximum(share * leads, np.minimum(leads, LEAST_LEAD)) - leads)
    rows.query += first
    return rows, leads


def solve_forgetting(
    edited: EditedHead, ids: Ids, request: Request, metric: EditMetric | None, unrelated: EditedHead | None
) -> tuple[Int[np.ndarray, "m 3"], Solved]:
    """Let the best other token of every query lead the forgotten ones; choose it anew until the choice is stable.

    Which token replaces the forgotten ones is a discrete choice, so that the change is a local optimum.
    """
    assert request.forget is not None
    forgotten = find_forgotten(request.forget, ids, edited.layer)
    allowed = edited.layer.allowed
    asked = np.argwhere((allowed & forgotten[:, None]).any(axis=-1) & (allowed & ~forgotten[:, None]).any(axis=-1))
    found: list[tuple[np.ndarray, Solved]] = []
    current = edited
    for _ in range(MOST_SELECTIONS):
        chosen = np.where(forgotten[:, None], -np.inf, current.logits)[tuple(asked.T)].argmax(axis=-1)
        at = np.column_stack([asked, chosen])
        if found and np.array_equal(found[-1][0], at):
            break
        solved = solve_targets(edited, at, forgotten, request, metric, unrelated)
        found.append((at, solved))
        weights = solved.change.weights
        current = edited.changed(weights if metric is None else metric.original(weights))
    at, solved = min(found, key=lambda one: one[1].change.value)
    positions = edited.layer.positions[at[:, 0], at[:, 1]]
    return np.column_stack([at[:, 0], positions, at[:, 2]]), solved
