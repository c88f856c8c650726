"""Profiles of PyTorch optimizers, stepped on the exact gradient."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.errors import ProblemError
from attsvm.profiles.stepped import Arrays, Factor, Stepped, Task, Trajectory
from attsvm.results import Progress
from attsvm.training import LossGradient
from attsvm.training.attention import parse_attention
from attsvm.training.logit_change import logit_changes

if TYPE_CHECKING:
    import torch

_STEPS_BETWEEN_CALLS = 500


class OfTorch(Stepped):
    """A PyTorch optimizer.

    The parameters of each problem are float64 tensors of their own, so that an optimizer for matrices gets matrices.

    Parameters
    ----------
    make : callable
        From a list of parameters to the optimizer.
    name : str
    """

    def __init__(self, make: Callable[[list[Any]], "torch.optim.Optimizer"], name: str) -> None:
        import torch

        self._make, self.name = make, name
        self.learning_rate = float(make([torch.nn.Parameter(torch.ones(2, 2))]).param_groups[0]["lr"])

    def decays_weights(self) -> bool:
        """Whether a step with a gradient of zero moves ones."""
        import torch

        parameter = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
        parameter.grad = torch.zeros_like(parameter)
        self._make([parameter]).step()
        return bool((parameter != 1).any())

    def trajectory(self, task: Task, factor: Factor) -> Trajectory:
        """By a loop over the steps; the gradients of all problems are computed together."""
        import torch

        began = time.perf_counter()
        parameters = {
            name: [torch.nn.Parameter(torch.tensor(row, dtype=torch.float64)) for row in rows]
            for name, rows in task.start.items()
        }
        optimizer = self._make([parameter for each in parameters.values() for parameter in each])
        rates = [group["lr"] for group in optimizer.param_groups]
        gradient_at = LossGradient(task.problem, task.attention)
        records: dict[int, Arrays] = {}
        values, finite, interrupted = _values(parameters), True, False
        for step in range(task.steps):
            if step in task.records:
                records[step] = values
            for name, rows in _gradients(gradient_at, values, task.normalize).items():
                for parameter, row in zip(parameters[name], rows, strict=True):
                    parameter.grad = torch.from_numpy(row)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * float(factor(step))
            _step(optimizer)
            moved = _values(parameters)
            finite = all(np.isfinite(rows).all() for rows in moved.values())
            if not finite:
                break
            values = moved
            if task.callback is not None and step % _STEPS_BETWEEN_CALLS == 0:
                interrupted = bool(task.callback(Progress(step, task.steps, time.perf_counter() - began)))
                if interrupted:
                    break
        layer = parse_attention(task.attention, task.problem, None)
        weights = np.stack([layer.weights(records.get(step, values)) for step in task.records])
        changes = logit_changes(task.problem, np.array(task.records), weights, np.zeros(weights.shape[:2], np.int64))
        return Trajectory(weights, changes.max(axis=0), finite, interrupted)


def _values(parameters: dict[str, list[Any]]) -> Arrays:
    return {name: np.stack([parameter.detach().numpy() for parameter in each]) for name, each in parameters.items()}


def _gradients(gradient_at: LossGradient, values: Arrays, normalize: bool) -> Arrays:
    """The gradients, or the gradients over one ℓ2 norm for each problem."""
    gradient, log_scale = gradient_at(values)
    if normalize:
        squares = sum((rows**2).reshape(len(rows), -1).sum(axis=1) for rows in gradient.values())
        size = np.sqrt(squares)
        factor = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    else:
        factor = np.exp(log_scale)
    return {name: rows * factor.reshape(-1, *(1,) * (rows.ndim - 1)) for name, rows in gradient.items()}


def _step(optimizer: "torch.optim.Optimizer") -> None:
    try:
        optimizer.step()
    except TypeError as error:
        if "closure" not in str(error):
            raise
        raise ProblemError(
            f"optimizer: expected one that steps on a gradient, got {type(optimizer).__name__}, which needs a closure"
        ) from None
