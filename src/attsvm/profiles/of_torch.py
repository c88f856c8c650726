"""Profiles of PyTorch optimisers, stepped on the exact gradient."""

import contextlib
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from attsvm._utils.devices import find_torch_device
from attsvm._utils.progress import Progress
from attsvm.errors import ProblemError
from attsvm.profiles.stepped import Arrays, Look, ProfileTask, RateFactor, Stepped, refusal
from attsvm.training import LossGradient, logit_changes, parse_attention

if TYPE_CHECKING:
    import torch

_STEPS_BETWEEN_CALLS = 500
_PROBLEMS_COMPARED = 3
_STEPS_COMPARED = 120


class OfTorch(Stepped):
    """A PyTorch optimiser.

    ``make``: from a list of float64 parameters to the optimizer: W or p, or K and Q, of one problem; or of all
    problems, if the optimiser steps each as if it were alone.
    """

    def __init__(self, make: Callable[[list[Any]], "torch.optim.Optimizer"], name: str) -> None:
        self._make, self.name = make, name
        self._layouts: dict[tuple[tuple[int, ...], ...], str] = {}
        rates = [group.get("lr") for group in make(_parameters({"W": np.ones((2, 2))})).param_groups]
        self.learning_rate = None if rates[0] is None else float(rates[0])

    def idle_step(self, parameters: Arrays) -> Arrays:
        """By one step of an optimiser made for it."""
        import torch

        moved = _parameters(parameters)
        for parameter in moved:
            parameter.grad = torch.zeros_like(parameter)
        _step(self._make(moved))
        return {name: x.detach().numpy() for name, x in zip(parameters, moved, strict=True)}

    def _layout(self, start: Arrays) -> str:
        """How to hold the parameters of all problems so that each is stepped as by an optimiser of its own.

        One tensor for all problems is the fastest layout, then one optimiser for the tensors of all problems. Some
        optimisers have a state that all their parameters, or all entries of one, share. The same random gradients, of
        different sizes, are given to each layout for 120 steps, and the parameters have to be equal to the last bit to
        those that have an optimiser for each problem. A state that is shared only after more steps is not seen, but
        one tensor is refused if the optimiser keeps arrays of other shapes than that of the parameter.
        """
        import torch

        first = {name: x[:_PROBLEMS_COMPARED] for name, x in start.items()}

        def end(layout: str) -> "torch.Tensor":
            generator = torch.Generator().manual_seed(0)
            held = _HeldParameters(self._make, first, layout)
            # with a mean, so that distances to the start grow, which some optimisers set their steps by
            means = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in first.values()]
            for _ in range(_STEPS_COMPARED):
                drawn = [mean + torch.randn(mean.shape, dtype=mean.dtype, generator=generator) for mean in means]
                held.step([torch.stack([10.0 ** (s % 4 - 1) * row for s, row in enumerate(x)]) for x in drawn])
            if layout == "stacked" and not held.has_state_of_entries():
                raise ValueError("matrices of the state are not those of one problem")
            return torch.cat([torch.from_numpy(x).flatten() for x in held.values()])

        shapes = tuple(x.shape for x in start.values())
        if shapes not in self._layouts:
            expected = end("alone")
            self._layouts[shapes] = "alone"
            for layout in ("together", "stacked"):
                with contextlib.suppress(Exception):  # it may expect the parameters of one problem
                    if torch.equal(end(layout), expected):
                        self._layouts[shapes] = layout
        return self._layouts[shapes]

    def trajectory(self, task: ProfileTask, factor: RateFactor) -> Generator[Look, None, None]:
        """By a loop over the steps; the gradients of all problems are computed together."""
        with _one_thread():
            yield from self._trajectory(task, factor)

    def _trajectory(self, task: ProfileTask, factor: RateFactor) -> Generator[Look, None, None]:
        import torch

        began = time.perf_counter()
        home = find_torch_device(task.device or "cpu")
        number = len(next(iter(task.start.values())))
        held = _HeldParameters(self._make, task.start, self._layout(task.start), home)
        groups = [group for each in held.optimizers for group in each.param_groups]
        rates = [group.get("lr") for group in groups]
        gradient_at = LossGradient(task.problem, task.attention, batch_size=task.batch_size)
        layer = parse_attention(task.attention, task.problem, None)
        values, interrupted = dict(zip(task.start, held.values(), strict=True)), False
        for step in range(task.steps):
            gradients = _gradients(*gradient_at(values, step), task.normalize).values()
            for group, rate in zip(groups, rates, strict=True):
                if rate is not None:
                    group["lr"] = rate * float(factor(step))
            held.step([torch.from_numpy(x).to(home) for x in gradients])
            before, moved = values, dict(zip(task.start, held.values(), strict=True))
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


class _HeldParameters:
    """The parameters of all problems, and the optimisers that step them.

    ``layout``: "stacked", one tensor of all problems for each parameter; "together", a tensor for each problem and one
    optimiser; "alone", an optimiser for each problem.
    """

    def __init__(
        self, make: Callable[[list[Any]], Any], start: Arrays, layout: str, device: "torch.device | str" = "cpu"
    ) -> None:
        number = len(next(iter(start.values())))
        self._stacked = layout == "stacked"
        parts: list[Any] = [slice(None)] if self._stacked else list(range(number))
        parameters = [_parameters({name: x[part] for name, x in start.items()}, device) for part in parts]
        self._tensors = list(zip(*parameters, strict=True))
        with warnings.catch_warnings():  # the first axis of a stack holds the problems
            warnings.filterwarnings("ignore", r"\w+: a parameter of shape .* is read as \d+ matrices")
            self.optimizers = [make(each) for each in (parameters if layout == "alone" else [list(chain(*parameters))])]

    def step(self, gradients: list["torch.Tensor"]) -> None:
        """Step with the gradient of each parameter, whose first axis holds the problems."""
        for tensors, gradient in zip(self._tensors, gradients, strict=True):
            for tensor, rows in zip(tensors, [gradient] if self._stacked else gradient, strict=True):
                tensor.grad = rows
        for optimizer in self.optimizers:
            _step(optimizer)

    def has_state_of_entries(self) -> bool:
        """Whether the state of the optimisers has numbers and arrays of the parameters' shapes only."""
        import torch

        states = [(p.shape, state) for optimizer in self.optimizers for p, state in optimizer.state.items()]
        return all(
            x.numel() == 1 or x.shape == shape if isinstance(x, torch.Tensor) else isinstance(x, int | float | str)
            for shape, state in states
            for x in jax.tree.leaves(state)
        )

    def values(self) -> list[np.ndarray]:
        """Copies of the parameters, the problems first."""
        arrays = [[tensor.detach().cpu().numpy() for tensor in tensors] for tensors in self._tensors]
        return [each[0].copy() if self._stacked else np.stack(each) for each in arrays]


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
    except Exception as error:  # an optimiser may refuse these parameters in any way
        raise refusal(type(optimizer).__name__, error) from error
    kinds = {parameter.dtype for group in optimizer.param_groups for parameter in group["params"]}
    if kinds != {torch.float64}:
        raise ProblemError(
            f"optimizer: expected one that keeps the dtype float64 of its parameters, got {type(optimizer).__name__}, "
            f"which changes it to {(kinds - {torch.float64}).pop()}"
        )
