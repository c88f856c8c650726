"""Profiles of PyTorch optimizers, stepped on the exact gradient."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm._utils.devices import find_torch_device
from attsvm._utils.progress import Progress
from attsvm.errors import ProblemError
from attsvm.profiles.stepped import Arrays, Factor, Look, Stepped, Task
from attsvm.training import LossGradient
from attsvm.training.attention import parse_attention
from attsvm.training.collect import logit_changes

if TYPE_CHECKING:
    import torch

_STEPS_BETWEEN_CALLS = 500
_STEPS_COMPARED = 20


class OfTorch(Stepped):
    """A PyTorch optimizer.

    Each problem has float64 tensors of its own. The function is called with a list of the tensors of one problem: W or
    p, or K and Q; or with those of all problems, if the optimizer steps each as if it were alone.

    ``make``: from the list of the parameters of a problem to the optimizer.
    """

    def __init__(self, make: Callable[[list[Any]], "torch.optim.Optimizer"], name: str) -> None:
        self._make, self.name = make, name
        rates = [group.get("lr") for group in make(_parameters({"W": np.ones((2, 2))})).param_groups]
        self.learning_rate = None if rates[0] is None else float(rates[0])

    def idle_step(self, parameters: Arrays) -> Arrays:
        """By one step of an optimizer made for it."""
        import torch

        moved = _parameters(parameters)
        for parameter in moved:
            parameter.grad = torch.zeros_like(parameter)
        _step(self._make(moved))
        return {name: x.detach().numpy() for name, x in zip(parameters, moved, strict=True)}

    def _optimizers(self, parameters: list[list[Any]], *, together: bool) -> list["torch.optim.Optimizer"]:
        return [self._make(each) for each in ([list(chain(*parameters))] if together else parameters)]

    def _steps_each_alone(self, start: Arrays) -> bool:
        """Whether one optimizer for all problems, which is faster, steps each as its own optimizer would.

        Some optimizers have a state that all their parameters share. The same random gradients, of different sizes, are
        given to both for 20 steps, and the parameters have to be equal to the last bit. A state that is shared only
        after more steps is not seen.
        """
        import torch

        ends = []
        for together in (False, True):
            generator = torch.Generator().manual_seed(0)
            parameters = _of_problems(start)
            try:
                optimizers = self._optimizers(parameters, together=together)
                for _ in range(_STEPS_COMPARED):
                    for s, each in enumerate(parameters):
                        for x in each:
                            x.grad = 10.0 ** (s % 4 - 2) * torch.randn(x.shape, dtype=x.dtype, generator=generator)
                    for optimizer in optimizers:
                        _step(optimizer)
            except Exception:
                if together:  # it expects the parameters of one problem
                    return False
                raise
            ends.append(torch.cat([x.detach().flatten() for each in parameters for x in each]))
        return torch.equal(*ends)

    def trajectory(self, task: Task, factor: Factor) -> Generator[Look, None, None]:
        """By a loop over the steps; the gradients of all problems are computed together."""
        with _one_thread():
            yield from self._trajectory(task, factor)

    def _trajectory(self, task: Task, factor: Factor) -> Generator[Look, None, None]:
        import torch

        began = time.perf_counter()
        home = find_torch_device(task.device or "cpu")
        number = len(next(iter(task.start.values())))
        parameters = _of_problems(task.start, home)
        optimizers = self._optimizers(parameters, together=self._steps_each_alone(task.start))
        groups = [group for each in optimizers for group in each.param_groups]
        rates = [group.get("lr") for group in groups]
        gradient_at = LossGradient(task.problem, task.attention, batch_size=task.batch_size)
        layer = parse_attention(task.attention, task.problem, None)
        values, interrupted = _values(task, parameters), False
        for step in range(task.steps):
            gradients = _gradients(*gradient_at(values, step), task.normalize).values()
            on_device = [torch.from_numpy(rows).to(home) for rows in gradients]
            for s, each in enumerate(parameters):
                for parameter, rows in zip(each, on_device, strict=True):
                    parameter.grad = rows[s]
            for group, rate in zip(groups, rates, strict=True):
                if rate is not None:
                    group["lr"] = rate * float(factor(step))
            for optimizer in optimizers:
                _step(optimizer)
            before, moved = values, _values(task, parameters)
            finite = all(np.isfinite(rows).all() for rows in moved.values())
            if finite:
                values = moved
            if task.callback is not None and step % _STEPS_BETWEEN_CALLS == 0:
                interrupted = bool(task.callback(Progress(step, task.steps, time.perf_counter() - began)))
            ends = interrupted or not finite
            if ends or step + 1 in task.looks:
                weights = np.stack([layer.weights(before), layer.weights(values)])
                records = np.array([step, step + 1])
                changes = logit_changes(task.problem, records, weights, np.zeros((2, number), np.int64))
                yield Look(step + 1, weights[1], changes[1], finite, interrupted)
            if ends:
                return


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread, because the products of small matrices do not gain from more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _parameters(arrays: Arrays, device: "torch.device | str" = "cpu") -> list[Any]:
    import torch

    made = [torch.tensor(array, dtype=torch.float64, device=device) for array in arrays.values()]
    return [torch.nn.Parameter(x) for x in made]


def _of_problems(start: Arrays, device: "torch.device | str" = "cpu") -> list[list[Any]]:
    number = len(next(iter(start.values())))
    return [_parameters({name: rows[s] for name, rows in start.items()}, device) for s in range(number)]


def _values(task: Task, parameters: list[list[Any]]) -> Arrays:
    columns = zip(*parameters, strict=True)
    return {
        name: np.stack([parameter.detach().cpu().numpy() for parameter in each])
        for name, each in zip(task.start, columns, strict=True)
    }


def _gradients(gradient: Arrays, log_scale: np.ndarray, normalize: bool) -> Arrays:
    """The gradients, or the gradients over one ℓ2 norm for each problem."""
    if normalize:
        squares = sum((rows**2).reshape(len(rows), -1).sum(axis=1) for rows in gradient.values())
        size = np.sqrt(squares)
        factor = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    else:
        factor = np.exp(log_scale)
    return {name: rows * factor.reshape(-1, *(1,) * (rows.ndim - 1)) for name, rows in gradient.items()}


def _step(optimizer: "torch.optim.Optimizer") -> None:
    import torch

    try:
        optimizer.step()
    except Exception as error:  # an optimizer may refuse these parameters in any way
        name, why = type(optimizer).__name__, (str(error).splitlines() or [type(error).__name__])[0]
        needs = "needs a closure" if "closure" in why else f"refused a step ({why})"
        raise ProblemError(f"optimizer: expected one that steps on a gradient, got {name}, which {needs}") from error
    kinds = {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]}
    if kinds != {torch.float64}:
        raise ProblemError(
            f"optimizer: expected one that keeps the dtype of its parameters, float64, got {type(optimizer).__name__}, "
            f"which changes it to {(kinds - {torch.float64}).pop()}"
        )
