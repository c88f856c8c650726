"""A training before its first step: its arguments, checked and brought together, and the initial parameters."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optax

from attsvm._utils.checks import MOST_STEPS, check_integer, check_number, check_seed, weights_of
from attsvm._utils.jax_devices import find_device
from attsvm.errors import ProblemError
from attsvm.optimizers import optimizer_of, parse_optimizer, rule_of
from attsvm.problem import Problem
from attsvm.training.attention_heads import heads_of
from attsvm.training.excess import check_excess
from attsvm.training.objective import Objective
from attsvm.training.plateau import MarginPlateau, margin_plateau
from attsvm.training.resumed import parse_loss_of, setting_of
from attsvm.training.stopping import Stopping
from attsvm.training.trials import MiniBatchSampler

Arrays = dict[str, np.ndarray]

DEFAULT_RECORDS = 50
MOST_RECORDS = 10**7


class Setup:
    """One training before its first step: what is minimised, by what, from where, and for how many steps.

    The arguments are those of :func:`attsvm.train`, for ``steps`` after those of the run that is ``resumed``.
    ``of_head``: all parameters of the head, with the batch axes of the problem. ``fixed``: the names of the parameters
    that keep their values.

    Raises ProblemError if an argument does not fit.
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        of_head: Arrays,
        *,
        steps: int,
        optimizer: Any,
        learning_rate: Any,
        loss_name: str,
        init: Any,
        resumed: Any,
        seed: int | None,
        record: int | Sequence[int] | None,
        dtype: str | None,
        device: str | None,
        batch_size: int | None = None,
        stop: Stopping | None = None,
        penalty: float = 0.0,
        train_head: bool = False,
        fixed: Sequence[str] = (),
        map_name: str = "softmax",
    ) -> None:
        seed, dtype = setting_of("seed", seed, resumed, 0), setting_of("dtype", dtype, resumed, "float64")
        self.check_numbers(steps, dtype, penalty, seed)
        self.problem, self.of_head, self.resumed, self.seed, self.penalty = problem, of_head, resumed, seed, penalty
        self.dtype, self.device = np.dtype(dtype), find_device(device)
        self.loss_name, self.map_name = loss_name, map_name
        self.stop = parse_stop(stop)
        if self.stop.margin_tol is not None and objective.map.by_sign:
            raise ProblemError(f"margin_tol: expected None with the {map_name} map, under which no token is selected")
        self.batches = mini_batches(setting_of("batch_size", batch_size, resumed, None), self.stop, problem)
        # the batch axes of the run, trials first
        values, self.batch_shape = starting_point(
            problem, objective, of_head, init, resumed, seed, train_head=train_head
        )
        # shape (trials, ...): the initial values of the trained parameters, and of those that would be if not fixed
        self.trained = {name: x for name, x in values.items() if name not in fixed}
        self.fixed = {name: x for name, x in values.items() if name in fixed}
        # the problem of the attention's trained parameters; None if there are none
        self.reduced = objective.reduced(
            problem, {name: x.reshape(self.batch_shape + x.shape[1:]) for name, x in self.fixed.items()}
        )
        self.optimizer = self._parse_optimizer(objective, optimizer, learning_rate)
        rule = rule_of(self.optimizer)
        self.objective = replace(objective, heads=heads_of(problem, rule))
        if rule.reads_excess:
            check_excess(self.objective)
        # the parameters of the attention are 2^exponent, of each trial, times the initial values
        log_scale = 0.0 if resumed is None else resumed.log_scale
        self.exponent = initial_exponent(log_scale, objective.num_factors(self.trained), self.batch_shape)
        self.first = 0 if resumed is None else max(resumed.steps, int(resumed.history["steps"].max(initial=0)))
        last = self.first + int(steps)
        # the steps that the history holds, and those that are observed
        self.recorded = record_steps(record, self.first, last)
        self.marks = observed_steps(self.recorded, self.first, last)
        # where the initial parameters come from: "zeros", "random", "given" or "run"
        self.start = described_start(init, resumed, objective.shapes(problem))
        self.plateau: MarginPlateau | None = None  # None if the margins are not watched
        if self.stop.margin_tol is not None:
            self.plateau = margin_plateau(self.stop.margin_tol, self.optimizer, self.reduced)

    def _parse_optimizer(self, objective: Objective, given: Any, learning_rate: Any) -> optax.GradientTransformation:
        if learning_rate is not None:
            if given is None and self.resumed is not None:
                raise ProblemError("learning_rate: expected an optimiser with it, because a run is resumed")
            return parse_optimizer(given, learning_rate=learning_rate)
        if given is None:
            given = objective.default_optimizer(self.reduced) if self.resumed is None else optimizer_of(self.resumed)
        return parse_optimizer(given)

    parse_loss = staticmethod(parse_loss_of)

    @staticmethod
    def check_numbers(steps: Any, dtype: str, penalty: Any, seed: Any) -> None:
        """Check the arguments that are numbers.

        Raises ProblemError if one is out of range.
        """
        check_integer("steps", steps, 0, MOST_STEPS)
        check_number("penalty", penalty, "a number >= 0", lambda x: x >= 0)
        check_seed(seed)
        if dtype not in ("float64", "float32"):
            raise ProblemError(f'dtype: expected "float64" or "float32", got {dtype!r}')

    @property
    def num_trials(self) -> int:
        return int(np.prod(self.batch_shape, dtype=np.int64))


def parse_stop(stop: Stopping | None) -> Stopping:
    """The tolerances that are given; without any by default.

    Raises ProblemError if it is of another type.
    """
    if stop is None:
        return Stopping()
    if not isinstance(stop, Stopping):
        raise ProblemError(f"stop: expected a Stopping, got {stop!r}")
    return stop


def mini_batches(size: int | None, stop: Stopping, problem: Problem) -> MiniBatchSampler | None:
    """The mini-batches of a size; None if each step sees all sequences.

    Raises ProblemError if the size does not fit, or comes with a tolerance of the gradient.
    """
    n = problem.tokens.shape[-3]
    if size is None or (size == n and not isinstance(size, bool)):
        return None
    if isinstance(size, bool) or not (isinstance(size, int | np.integer) and 1 <= size < n):
        raise ProblemError(f"batch_size: expected an integer from 1 to n = {n}, got {size!r}")
    if stop.gradient_tol is not None:
        raise ProblemError(
            f"gradient_tol: expected None with batch_size, got {stop.gradient_tol:g}; the gradients of single "
            "mini-batches do not vanish, so use margin_tol"
        )
    return MiniBatchSampler(n, int(size))


def record_steps(record: int | Sequence[int] | None, start: int, stop: int) -> list[int]:
    """The steps that the history holds; step 0 is one of them unless a run is resumed."""
    record = DEFAULT_RECORDS if record is None else record
    first = start + (start > 0)
    if np.ndim(record) == 0:
        record = check_integer("record", record, 1, MOST_RECORDS)
        if record == 1 or stop <= first:
            return [stop] if stop >= first else []
        spread = np.geomspace(max(first, 1), stop, int(record) - (start == 0))
        return sorted({first, stop, *np.rint(spread).astype(int).tolist()})
    steps = np.asarray(record)
    if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 0).any() or (steps > stop).any():
        raise ProblemError(f"record: expected a number of records, or steps from 0 to {stop}")
    return sorted({int(step) for step in steps if step >= first})


def observed_steps(recorded: list[int], start: int, stop: int) -> list[int]:
    """The steps to observe: those recorded, each one before them, whose difference is the last step, and the end."""
    return sorted({*recorded, *(step - 1 for step in recorded if step > start), stop})


def starting_point(
    problem: Problem, objective: Objective, of_head: Arrays, init: Any, resumed: Any, seed: int, *, train_head: bool
) -> tuple[Arrays, tuple[int, ...]]:
    """Parameters of the attention and of a trained head, one row per trial, and the batch axes of the run."""
    batch, head_names = problem.model_shape, tuple(of_head) if train_head else ()
    shapes, of_attention = objective.shapes_of_heads(problem), list(objective.shapes(problem))
    shapes |= {name: of_head[name].shape[len(batch) :] for name in head_names}
    if resumed is None:
        given = _read_init(init, of_attention, list(of_head), head_names)
    else:
        given = _last_parameters(resumed, of_attention, head_names)
    lead = batch
    for name, array in given.items():
        core = shapes[name]
        axes = array.shape[: array.ndim - len(core)]
        if array.ndim < len(core) or array.shape[len(axes) :] != core or 0 in axes:
            raise ProblemError(f"init: expected {name} of shape (..., {str(core)[1:-1]}), got {array.shape}")
        if not np.isfinite(array).all():
            raise ProblemError(f"init: expected finite entries of {name}")
        if axes and axes[len(axes) - len(batch) :] != batch:
            raise ProblemError(
                f"init: expected axes of {name} that end with the batch axes {batch} of the problem, got {axes}"
            )
        lead = axes if len(axes) > len(lead) else lead
        if core == problem.heads_shape + problem.weights_shape:
            problem.check_blocks(f"init: {name}", array)
    generator = np.random.default_rng(seed)
    start = {name: of_head[name] for name in head_names}
    if set(given) < set(of_attention) | set(start):
        start |= objective.initial(problem, generator, lead + problem.heads_shape)
    values = {}
    for name, core in shapes.items():
        array = given[name] if name in given else start[name]
        try:
            values[name] = np.broadcast_to(array, lead + core).reshape(-1, *core)
        except ValueError:
            raise ProblemError(f"init: expected {name} of shape {lead + core}, got {array.shape}") from None
    return values, lead


def initial_exponent(log_scale: Any, num_factors: int, batch: tuple[int, ...]) -> np.ndarray:
    """The power of two by which the factors of each trial are multiplied, from the logarithm of that of their product.

    It is 0 if no factor is trained.
    """
    power = np.rint(np.asarray(log_scale if num_factors else 0.0) / (max(num_factors, 1) * np.log(2.0)))
    return np.broadcast_to(power.astype(np.int64), batch).reshape(-1)


def _read_init(init: Any, of_attention: list[str], of_head: list[str], head_names: tuple[str, ...]) -> Arrays:
    if init is None:
        return {}
    if isinstance(init, dict):
        unknown = [name for name in init if name not in of_attention + of_head]
        if unknown:
            raise ProblemError(f"init: expected parameters {', '.join(of_attention + of_head)}, got {unknown[0]!r}")
        fixed = [name for name in init if name in of_head and name not in head_names]
        if fixed:
            raise ProblemError(
                f"init: expected train_head=True with {fixed[0]}, because the prediction head is not trained"
            )
        parts = init
    elif len(of_attention) == 1:
        parts = {of_attention[0]: init}
    else:
        if not (isinstance(init, tuple | list) and len(init) == len(of_attention)):
            raise ProblemError(
                f"init: expected a tuple ({', '.join(of_attention)}), a dict or a Run, got {type(init).__name__}"
            )
        parts = dict(zip(of_attention, init, strict=True))
    return {name: np.array(weights_of(x, "init")) for name, x in parts.items()}


def _last_parameters(resumed: Any, of_attention: list[str], head_names: tuple[str, ...]) -> Arrays:
    kept = {name: x for name, x in resumed.parameters.items() if name in of_attention or name in head_names}
    missing = [name for name in of_attention if name not in kept]
    if missing:
        raise ProblemError(f"init: expected a run with {missing[0]}, got one of {resumed.attention} attention")
    return kept


def described_start(init: Any, resumed: Any, of_attention: Collection[str]) -> str:
    """Where the initial parameters of the attention come from; those that are multiplied with each other are drawn."""
    if resumed is not None:
        return "run"
    return "given" if init is not None else "random" if len(of_attention) > 1 else "zeros"
