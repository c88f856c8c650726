"""Losses and predictions of a model on rows."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.papers.experiments.options import Precision
from attsvm.papers.experiments.tables import Rows

EVALUATION_BATCH = 250


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Loss of each row: binary cross-entropy of logits (b,), cross-entropy of logits (b, classes)."""
    outputs = outputs.float()
    if outputs.ndim == 1:
        return functional.binary_cross_entropy_with_logits(outputs, labels.float(), reduction="none")
    return functional.cross_entropy(outputs, labels, reduction="none")


def answers(outputs: Tensor) -> Tensor:
    """The predicted class of each row."""
    return (outputs > 0).long() if outputs.ndim == 1 else outputs.argmax(-1)


@torch.no_grad()
def evaluate(
    model: nn.Module, rows: Rows, device: str = "cpu", precision: Precision = "float32"
) -> tuple[float, float]:
    """Mean loss and accuracy of a model on rows, without dropout."""
    training = model.training
    model.eval()
    loss, correct, home = 0.0, 0, torch.device(device)
    for start in range(0, len(rows), EVALUATION_BATCH):
        inputs, labels = rows.batch(torch.arange(start, min(start + EVALUATION_BATCH, len(rows))), home)
        with in_precision(home, precision):
            outputs = model(inputs)
        loss += float(losses(outputs, labels).sum())
        correct += int((answers(outputs) == labels).sum())
    model.train(training)
    return loss / len(rows), correct / len(rows)


def in_precision(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """The context in which a model is called."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
