"""The smallest change of a head's keys or queries after which chosen queries attend to chosen tokens."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.linalg import orth
from torch import nn

from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.edits.head import EditedHead, EditMetric, HeadWeights, find_weights
from attsvm.inspect.edits.report import EditReport, Measured
from attsvm.inspect.edits.solved import Solved, solve_forgetting, solve_targets
from attsvm.inspect.edits.targets import Request, Targets, find_columns, find_targets, kept_targets
from attsvm.inspect.features import Features, as_read, named_vectors
from attsvm.inspect.residual import residual_stream
from attsvm.inspect.weights import Layer
from attsvm.results import Status

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True, eq=False, repr=False)
class Edit:
    """The smallest change of the key or query weights of one attention head that satisfies its targets.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    layer, head : int
    change : str
        "keys" or "queries".
    status : Status
        ``optimal`` if the certificate holds: the relative gap is at most 1e-8, and so is the violation, relative to the
        largest change of a lead if that exceeds 1. ``infeasible`` if the targets contradict each other: the multipliers
        prove a norm of at least 1e12 times that of the hardest lead alone; see :attr:`conflict`. Else ``inaccurate``.
    weights : ndarray, shape (d, d_h) or (d + 1, d_h)
        D, which is added to the weights x'W of the keys or queries; for queries with a bias, its last row is added to
        the bias. Zeros if infeasible.
    targets : int ndarray, shape (m, 3)
        Sequence, position of the query and position of the token. When tokens are forgotten: the tokens that replace
        them, for every query.
    shares : ndarray, shape (m,)
        The part of each target in the sum of the multipliers. Targets with 0 could be left out.
    value : float
        The norm that is minimised: ‖D‖_F, or with ``keep`` that of the metric. ∞ if infeasible.
    lower : float
        No change that gives the targets their leads has a smaller norm.
    violation : float
        The largest amount by which a logit difference falls short.
    norm, relative_norm : float
        ‖D‖_F, and divided by the norm of the weights that change.
    heads : list of int
        The heads of the layer that the change acts on: several, if they share their keys.

    See Also
    --------
    attsvm.inspect.Inspection.edit : Makes one.

    Notes
    -----
    The keys and queries that enter a layer do not depend on its own weights, so that the attention of the edited layer
    is predicted exactly. The leads are sufficient for the probability, and not necessary. The smallest change is not
    the one that damages other text least, nor the one that generalises best: measure both by :meth:`report`.

    When tokens are forgotten, the certificate is for the tokens in ``targets`` that replace them. With other
    replacements a smaller change may exist, also where the status is ``infeasible``.

    Examples
    --------
    >>> import attsvm.inspect, torch, transformers
    >>> _ = torch.manual_seed(0)
    >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    >>> model, tokens = transformers.GPT2Model(config).eval(), torch.randint(64, (4, 16))
    >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> edit = inspection.edit(1, 0, [(0, 9, 3), (1, 9, 3), (2, 9, 3)])
    >>> edit.status, edit.weights.shape, edit.gap <= 1e-8
    (<Status.OPTIMAL: 'optimal'>, (32, 8), True)
    >>> with edit.apply(model):
    ...     after = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> after.heads[5 - 1].selected[0, 9]
    np.int64(3)
    """

    layer: int
    head: int
    change: str
    status: Status
    weights: Float[np.ndarray, "d d_h"]
    targets: Int[np.ndarray, "m 3"]
    shares: Float[np.ndarray, " m"]
    value: float
    lower: float
    violation: float
    norm: float
    relative_norm: float
    heads: list[int]
    source: ModelAndBatch = field(repr=False)
    keep: ModelAndBatch | None = field(repr=False)
    request: Request = field(repr=False)
    solved: Solved = field(repr=False)

    @property
    def gap(self) -> float:
        """1 − lower/value, which rounding may make negative, in absolute value; ∞ if infeasible."""
        return self.solved.change.gap

    @property
    def conflict(self) -> list[tuple[int, int, int]]:
        """The targets that contradict each other, those with 99 % of the multipliers; empty unless infeasible."""
        if self.status != Status.INFEASIBLE:
            return []
        order = np.argsort(-self.shares, kind="stable")
        count = int(np.searchsorted(np.cumsum(self.shares[order]), 0.99)) + 1
        return [tuple(int(x) for x in self.targets[at]) for at in np.sort(order[:count])]  # type: ignore[misc]

    @contextlib.contextmanager
    def apply(self, model: Model) -> Iterator[Model]:
        """Change the weights of a model, and restore them at the end of the ``with`` block.

        Parameters
        ----------
        model : torch.nn.Module
            The inspected model, a copy of it, or a model that contains it.

        Raises
        ------
        ProblemError
            If the model has no such layer, or the targets are infeasible.
        """
        found = self._found(model)
        parts = [part for part in (found.weight, found.bias) if part is not None]
        before = [part.detach()[found.rows].clone() for part in parts]
        with torch.no_grad():
            found.add(self.weights)
        try:
            yield model
        finally:
            with torch.no_grad():
                for part, values in zip(parts, before, strict=True):
                    part[found.rows] = values

    def edited(self, model: Model) -> Model:
        """A copy of a model with the change in its weights; arguments and errors as in :meth:`apply`."""
        copied = copy.deepcopy(model)
        with torch.no_grad():
            self._found(copied).add(self.weights)
        return copied

    def reads(self, origins: Mapping[str, Any] | Features) -> dict[str, float]:
        """The share of the change that reads named directions of the residual stream, each by itself.

        The share is ‖g'D‖²/‖D‖_F² for the unit vector g of the direction as the layer reads it, through its norm; with
        several vectors, their span. It is 1/d for a random direction on average. Directions that are not orthogonal
        share what they have in common.

        Parameters
        ----------
        origins : dict of str to array of shape (d,) or (k, d), or Features
            As in :meth:`attsvm.inspect.Inspection.explain`.

        Returns
        -------
        dict of str to float
            The largest first.

        Raises
        ------
        ProblemError
            If the vectors do not fit, or the family of the model does not describe its residual stream.
        """
        own = find_weights(self.source.model, self.source.layers[self.layer], self.head, self.change)
        read = _read_by(self.source, self.layer, origins, own, "origins")
        shares = {name: float(np.sum((orth(rows.T).T @ self.weights) ** 2)) for name, rows in read.items()}
        total = self.norm**2 or 1.0
        return {name: share / total for name, share in sorted(shares.items(), key=lambda pair: -pair[1])}

    def leave_one_out(self) -> float | None:
        """The share of targets that an edit without their sequence satisfies: an estimate of held-out success.

        Each sequence is left out once, with an exact solve; those whose multipliers are 0 need none. With ``preserve``
        the kept rows are those that the edit needed. None when tokens are forgotten, if the targets are infeasible, or
        for a single sequence.
        """
        return self.solved.leave_one_out(self.targets) if self.request.forget is None else None

    def report(self, held_out: Any = None, targets: Targets | None = None, unrelated: Any = None) -> EditReport:
        """Measure the edit in the running model: success on held-out text, and damage on unrelated text.

        Parameters
        ----------
        held_out : mapping, tuple or Tensor, optional
            Arguments of the model, as for an inspection, for sequences that the edit has not seen.
        targets : optional
            What should happen there: as in :meth:`attsvm.inspect.Inspection.edit`. By default the function with which
            the edit was made, or the same forgotten tokens.
        unrelated : mapping, tuple or Tensor, optional
            Arguments of the model for text on which the damage is measured. By default ``keep``, on which the damage
            is smaller than on other text; without it, the text of the edit.

        Returns
        -------
        EditReport
        """
        request = self.request
        if targets is not None:
            if held_out is None:
                raise ProblemError("held_out: expected the text of the targets")
            request = request._replace(targets=kept_targets(targets), forget=None)
        if held_out is not None and targets is None and not (request.forget or callable(request.targets)):
            raise ProblemError("targets: expected targets for the held-out text, or an edit with a function")
        model, layers = self.source.model, self.source.layers
        damaged = (
            self.keep or self.source
            if unrelated is None
            else ModelAndBatch.whole(model, unrelated, layers, "unrelated")
        )
        success = None if held_out is None else ModelAndBatch.whole(model, held_out, layers, "held_out")
        asked = self.layer, self.head, request, success, damaged
        before = Measured.of(*asked)
        with self.apply(model):
            measured = before.numbers(Measured.of(*asked))
        own = {name: getattr(self, name) for name in ("norm", "relative_norm", "value", "gap", "violation")}
        return EditReport(leave_one_out=self.leave_one_out(), **measured, **own)

    def __repr__(self) -> str:
        what = f"Edit(head {self.layer}.{self.head}, {self.change}: {self.status}, {len(self.targets)} targets"
        if self.status == Status.INFEASIBLE:
            return f"{what}, contradicting: {', '.join(map(str, self.conflict))})"
        return f"{what}, norm {self.norm:.4g} ({self.relative_norm:.1%} of the weights), gap {self.gap:.1e})"

    def _found(self, model: nn.Module) -> HeadWeights:
        if self.status == Status.INFEASIBLE:
            raise ProblemError(f"edit: the targets contradict each other: {', '.join(map(str, self.conflict))}")
        return find_weights(model, self.source.layers[self.layer], self.head, self.change)


def _read_by(
    source: ModelAndBatch, index: int, given: Mapping[str, Any] | Features, own: HeadWeights, argument: str
) -> dict[str, Float[np.ndarray, "k d"]]:
    """Named directions as a layer reads them; the coordinate of a bias, if there is one, is 0."""
    vectors = named_vectors(given, own.weight.shape[1], argument=argument)
    norm = residual_stream(source.model, source.batch, source.layers, index).norm
    more = (0, 0), (0, own.bias is not None)
    return {name: np.pad(as_read(norm, of_name), more) for name, of_name in vectors.items()}


def make_edit(
    source: ModelAndBatch,
    captured: Layer,
    index: int,
    head: int,
    request: Request,
    keep: ModelAndBatch | None,
    kept: Layer | None,
) -> Edit:
    """The edit of one head; ``captured``, ``kept``: its layer on the text of the edit and on that to keep."""
    weights = find_weights(source.model, source.layers[index], head, request.change)
    edited = EditedHead(captured, head, request.change, weights.bias is not None)
    unrelated = None if kept is None else EditedHead(kept, head, request.change, weights.bias is not None)
    metric = None if unrelated is None else unrelated.metric(request.ridge)
    if request.along is not None:
        rows, columns = edited.weights.shape
        read = _read_by(source, index, request.along, weights, "along")
        basis = orth(np.vstack([np.zeros((1, rows)), *read.values()]).T)
        if not basis.size:
            raise ProblemError("along: expected a direction that the layer reads")
        metric = (metric or EditMetric(np.eye(rows), np.eye(columns))).within(basis)
    if request.targets is not None:
        targets = find_targets(request.targets, source.tokens)
        at = np.column_stack([targets[:, 0], find_columns(targets, captured), targets[:, 2]])
        solved = solve_targets(edited, at, None, request, metric, unrelated)
    else:
        targets, solved = solve_forgetting(edited, source.tokens, request, metric, unrelated)
    change = solved.change
    own = change.weights if metric is None else metric.original(change.weights)
    norm = np.inf if change.status == Status.INFEASIBLE else float(np.linalg.norm(own))
    size = float(np.linalg.norm(edited.weights))
    return Edit(
        layer=index,
        head=head,
        change=request.change,
        weights=own,
        targets=targets,
        shares=solved.shares(len(targets)),
        **{name: getattr(change, name) for name in ("status", "value", "lower", "violation")},
        norm=norm,
        relative_norm=norm / size if size else np.inf,
        heads=weights.heads,
        source=source,
        keep=keep,
        request=request,
        solved=solved,
    )
