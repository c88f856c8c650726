"""What an edit does in the running model: success on held-out text, damage on unrelated text."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.edits.targets import Request
from attsvm.inspect.model_calls import call_model, evaluating


@dataclass(frozen=True)
class EditReport:
    """Success and damage of an edit, measured in the running model.

    :ref:`Provisional <provisional>`: it may change in any minor version.

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
    norm, relative_norm, value, gap, violation : float
        As those of the edit.
    """

    success_before: float | None
    success: float | None
    attention_before: float | None
    attention: float | None
    leave_one_out: float | None
    total_variation: float
    selections_changed: float
    output_change: float
    norm: float
    relative_norm: float
    value: float
    gap: float
    violation: float

    def __str__(self) -> str:
        numbers = {entry.name.replace("_", " "): getattr(self, entry.name) for entry in fields(self)}
        return "\n".join(f"{name:20}{value:9.4g}" for name, value in numbers.items() if value is not None)


class Measured(NamedTuple):
    """What the model does as it is, with the edit or without it."""

    rows: Float[np.ndarray, "queries T"]  # attention on the unrelated text
    output: np.ndarray  # of the model on it, without padding
    success: float | None
    attention: float | None

    @classmethod
    def of(
        cls, layer: int, head: int, request: Request, held_out: ModelAndBatch | None, unrelated: ModelAndBatch
    ) -> "Measured":
        """Run the model on both texts."""
        captured = unrelated.captured(layer, head)
        rows = captured.probabilities(head)[captured.positions >= 0]
        with torch.no_grad(), evaluating(unrelated.model, "sdpa"):
            output = _first(call_model(unrelated.model, unrelated.batch))
        mask = unrelated.batch.get("attention_mask") if isinstance(unrelated.batch, Mapping) else None
        real = output[mask.bool()] if isinstance(mask, Tensor) and mask.shape == output.shape[:2] else output
        done: tuple[float | None, float | None] = None, None
        if held_out is not None:
            done = request.measure(held_out.tokens, held_out.captured(layer, head), head)
        return cls(rows, real.double().cpu().numpy(), *done)

    def numbers(self, after: "Measured") -> dict[str, Any]:
        """The numbers of a report that are measured."""
        return {
            "success_before": self.success,
            "success": after.success,
            "attention_before": self.attention,
            "attention": after.attention,
            "total_variation": float(np.abs(self.rows - after.rows).sum(axis=-1).mean() / 2),
            "selections_changed": float((self.rows.argmax(axis=-1) != after.rows.argmax(axis=-1)).mean()),
            "output_change": float(np.linalg.norm(after.output - self.output) / np.linalg.norm(self.output)),
        }


def _first(output: Any) -> Tensor:
    """The hidden states or the logits of an output: its first tensor."""
    found = output if isinstance(output, Tensor) else output[0]
    if not isinstance(found, Tensor):
        raise ProblemError(f"model: expected an output that starts with a tensor, got {type(found).__name__}")
    return found
