"""What an edit does in the running model: success on held-out text, damage on unrelated text."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.inspect.edits.targets import Forgotten, Targets, find_columns, find_forgotten, find_targets
from attsvm.inspect.model_calls import evaluating
from attsvm.inspect.source import Source
from attsvm.inspect.weights import Layer

if TYPE_CHECKING:
    from attsvm.inspect.edits.edit import Edit


class Goal(NamedTuple):
    """Either targets with the least attention that they should have, or forgotten tokens with the largest."""

    targets: Targets | None
    forget: Forgotten | None
    probability: float

    @property
    def is_general(self) -> bool:
        """Whether it says what to do on other text."""
        return self.forget is not None or callable(self.targets)

    def measure(self, source: Source, layer: Layer, head: int) -> tuple[float, float]:
        """The share of queries that do what is asked, and their mean attention to the tokens."""
        attention = layer.probabilities(head)
        if self.forget is None:
            assert self.targets is not None
            targets = find_targets(self.targets, source.tokens)
            rows = attention[targets[:, 0], find_columns(targets, layer)]
            done = rows.argmax(axis=-1) == targets[:, 2]
            return float(done.mean()), float(np.take_along_axis(rows, targets[:, 2:], axis=-1).mean())
        forgotten = find_forgotten(self.forget, source.tokens, layer)[:, None]
        asked = (layer.allowed & forgotten).any(axis=-1) & (layer.allowed & ~forgotten).any(axis=-1)
        mass = (attention * forgotten).sum(axis=-1)[asked]
        return float((mass <= self.probability).mean()), float(mass.mean())


@dataclass(frozen=True)
class EditReport:
    """Success and damage of an edit, measured in the running model.

    Attributes
    ----------
    success_before, success : float or None
        Share of the held-out targets that their queries select, without and with the edit; when tokens are forgotten,
        share of the queries that give them at most the probability. None without held-out text.
    attention_before, attention : float or None
        Mean attention to the targets, or to the forgotten tokens.
    leave_one_out : float or None
        Estimate of ``success`` from the text of the edit alone; see :meth:`Edit.leave_one_out`.
    total_variation : float
        ½ Σ|p − p'| of the attention of the head without and with the edit, averaged over the unrelated queries.
    selections_changed : float
        Share of these queries that select another token.
    output_change : float
        Norm of the change of the model's output on this text, relative to that of the output.
    edit : Edit
        With its norm and its certificate.
    """

    success_before: float | None
    success: float | None
    attention_before: float | None
    attention: float | None
    leave_one_out: float | None
    total_variation: float
    selections_changed: float
    output_change: float
    edit: "Edit" = field(repr=False)

    def __str__(self) -> str:
        numbers = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "edit"}
        lines = [f"{name.replace('_', ' '):20}{value:8.4f}" for name, value in numbers.items() if value is not None]
        return "\n".join([str(self.edit), *lines])


def report_on(edit: "Edit", goal: Goal, success: Source | None, damaged: Source) -> EditReport:
    """Measure an edit; ``success``: the held-out text, ``damaged``: the unrelated text."""
    before, success_before = _measured(edit, goal, success, damaged)
    with edit.apply(edit.source.model):
        after, success_after = _measured(edit, goal, success, damaged)
    there = before.layer.positions >= 0
    first, second = (one.layer.probabilities(edit.head)[there] for one in (before, after))
    return EditReport(
        success_before=success_before[0],
        success=success_after[0],
        attention_before=success_before[1],
        attention=success_after[1],
        leave_one_out=edit.leave_one_out(),
        total_variation=float(np.abs(first - second).sum(axis=-1).mean() / 2),
        selections_changed=float((first.argmax(axis=-1) != second.argmax(axis=-1)).mean()),
        output_change=float(np.linalg.norm(after.output - before.output) / np.linalg.norm(before.output)),
        edit=edit,
    )


class _Measured(NamedTuple):
    layer: Layer
    output: Float[np.ndarray, "tokens d"]


def _measured(
    edit: "Edit", goal: Goal, success: Source | None, damaged: Source
) -> tuple[_Measured, tuple[float | None, float | None]]:
    layer = damaged.captured(edit.layer, edit.head)
    with torch.no_grad(), evaluating(damaged.model, "sdpa"):
        output = _first(damaged.run())
    mask = damaged.batch.get("attention_mask") if isinstance(damaged.batch, dict) else None
    real = output[mask.bool()] if isinstance(mask, Tensor) and mask.shape == output.shape[:2] else output
    measured = _Measured(layer, real.double().cpu().numpy())
    if success is None:
        return measured, (None, None)
    return measured, goal.measure(success, success.captured(edit.layer, edit.head), edit.head)


def _first(output: Any) -> Tensor:
    """The hidden states or the logits of an output: its first tensor."""
    found = output if isinstance(output, Tensor) else output[0]
    if not isinstance(found, Tensor):
        raise ProblemError(f"model: expected an output that starts with a tensor, got {type(found).__name__}")
    return found
