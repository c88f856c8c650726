"""The main loop: a problem and an optimiser in, a run out."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.heads import Head, parse_head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.norms import Lp, Norm, Nuclear
from attsvm.optimizers import (
    Limit,
    Optimizer,
    Rule,
    configuration,
    normalized_gradient_descent,
    parse_optimizer,
    rule_of,
)
from attsvm.problem import Problem
from attsvm.results import Callback, Progress, Status, plain, plain_status
from attsvm.training.attention.attention import Attention, parse_attention
from attsvm.training.engine.batches import MiniBatches
from attsvm.training.engine.marks import record_steps, segment_lengths
from attsvm.training.engine.objective import Objective, Observation
from attsvm.training.engine.program import CONVERGED, RUNNING, Inputs, Program, State, program
from attsvm.training.engine.trials import TrialData, num_threads, slices, trials_last, workers
from attsvm.training.run import Run, optimizer_of
from attsvm.training.start import starting_point
from attsvm.training.stopping import MarginPlateau

Array = np.ndarray
Arrays = dict[str, np.ndarray]

_MOST_RECORDS_A_CALL = 64
_RECORDED_NUMBERS_A_CALL = 16_000_000
_SECONDS_A_CALL = 0.5
_PRECISE_LOGIT = 1e8
_HISTORY = ("steps", "loss", "probability", "selected", "weights")


def train(
    problem: Problem,
    *,
    attention: str | None = None,
    optimizer: str | optax.GradientTransformation | Rule | None = None,
    steps: int = 2000,
    loss: str | OutputLoss | Callable[[Any], Any] = "logistic",
    head: str | Head | None = None,
    train_head: bool = False,
    rank: int | None = None,
    penalty: float = 0.0,
    batch_size: int | None = None,
    margin_tol: float | None = None,
    gradient_tol: float | None = None,
    init: Any = None,
    seed: int = 0,
    record: int | Sequence[int] | None = None,
    dtype: str = "float64",
    callback: Callback | None = None,
) -> Run:
    """Train a softmax attention layer, into the limit where the theorems speak.

    Minimises (1/N) Σ ℓ(y f) over the N unmasked queries, f = h(Σ_t softmax(s)_t x_t). The gradient keeps its relative
    accuracy however saturated the softmax is, and a normalised step goes on where the gradient itself underflows.

    Parameters
    ----------
    problem : Problem
        With labels, and a head unless ``head`` is given. Its batch axes are trained side by side.
    attention : {"combined", "factored", "prompt"}, optional
        s = k'Wz, k'KQ'z or k'p. By default combined for a problem with queries, else a prompt.
    optimizer : optax.GradientTransformation, str or Rule, optional
        One of :mod:`attsvm.optimizers`, by name or as an object, an import path ``package.module:name``, or any
        optimizer of optax. By default normalized gradient descent with learning rate 0.1; for factored attention with
        one norm over both factors and steps of 1 % of the norm of (K, Q).
    steps : int
        Updates to make, in addition to those of a run that is resumed.
    loss : str, Loss or callable
        "logistic", "exponential", "linear", "cross_entropy" (class labels) or another name of
        :mod:`attsvm.losses`, an import path ``package.module:name``, a :class:`Loss`, or a function m ↦ ℓ(m) of the
        margin in JAX, which is differentiated as it is written.
    head : Head or str, optional
        One of :mod:`attsvm.heads`, by name, as an object, or by an import path. The problem's linear head by default.
    train_head : bool
        Train the head together with the attention, from where it stands.
    rank : int, optional
        Columns of K and Q; d_k by default.
    penalty : float
        Adds penalty · ‖θ‖², θ all trained parameters.
    batch_size : int, optional
        Sequences of a step, drawn without replacement and shuffled anew in each epoch, the same for all trials; what a
        last batch would lack is left to other epochs. By default all of them.
    margin_tol : float, optional
        End a trial, with status ``converged``, once its selection stayed and its margin (in the norm of the optimiser;
        the nuclear norm for factors) gained less than this fraction while the norm of the weights doubled: since the
        selection's best margin is fixed, a plateau of the margin ratio. Looked at when the number of steps is a
        power of √2.
    gradient_tol : float, optional
        End a trial, with status ``converged``, at a point where the gradient of all trained parameters is no longer
        than this, in the Frobenius norm. Not for mini-batches.
    init : array, (K, Q), dict of parameters, or Run, optional
        Where to start; leading axes in front of the problem's batch are trials. A Run is resumed: its history and its
        optimiser's state go on. By default W and p start at zero, and K and Q with entries N(0, 1/d) from ``seed``.
    seed : int
        Of the factors at the start, and of the mini-batches. Give that of a run to resume it.
    record : int or sequence of int, optional
        How many log-spaced steps the history holds, or which steps; 50 by default.
    dtype : {"float64", "float32"}
    callback : callable, optional
        Called with a :class:`~attsvm.Progress` between stretches of about half a second. Training stops when it returns
        True.

    Returns
    -------
    Run
        After Ctrl-C, or when the callback stopped it, the run so far, with status ``interrupted``.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem or another argument.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, steps=2000)
    >>> solution = attsvm.predict_direction(problem, run).solution
    >>> bool(attsvm.direction_error(run.weights, solution.direction) < 0.01)
    True
    """
    if problem.labels is None:
        raise ProblemError("problem: has no labels; training needs them")
    if not (isinstance(steps, int | np.integer) and steps >= 0):
        raise ProblemError(f"steps: {steps!r} found, an integer of at least 0 wanted")
    if not (np.ndim(penalty) == 0 and np.isfinite(penalty) and penalty >= 0):
        raise ProblemError(f"penalty: {penalty!r} found, a number of at least 0 wanted")
    for name, tolerance in (("margin_tol", margin_tol), ("gradient_tol", gradient_tol)):
        if tolerance is not None and not (np.ndim(tolerance) == 0 and np.isfinite(tolerance) and tolerance >= 0):
            raise ProblemError(f"{name}: {tolerance!r} found, a number of at least 0 wanted")
    if dtype not in ("float64", "float32"):
        raise ProblemError(f'dtype: {dtype!r} found, "float64" or "float32" wanted')
    batches = _mini_batches(batch_size, problem)
    if batches is not None and gradient_tol is not None:
        raise ProblemError("gradient_tol: the gradient of one mini-batch ends nothing; margin_tol goes with batch_size")
    resumed = init if isinstance(init, Run) else None
    layer = parse_attention(
        resumed.attention if resumed is not None and attention is None else attention, problem, rank
    )
    if optimizer is None:
        optimizer = optimizer_of(resumed) if resumed is not None else _default_optimizer(layer)
    optimizer = parse_optimizer(optimizer)
    head = parse_head("linear" if head is None else head)
    of_head = head.initial(problem)
    taken = sorted({*layer.shapes(problem), *_HISTORY} & set(of_head))
    if taken:
        raise ProblemError(f"head: the parameter name {taken[0]!r} is taken by the attention or the history")
    if train_head and not of_head:
        raise ProblemError("train_head: the head has no parameters")
    objective = Objective(
        layer,
        head,
        parse_loss(loss, problem.num_classes),
        tuple(of_head) if train_head else (),
        penalized=penalty > 0,
    )
    objective.check(of_head, problem)
    trained, batch = starting_point(problem, objective, of_head, init, seed)
    start = 0 if resumed is None else max(resumed.steps, int(resumed.history["steps"].max(initial=0)))
    recorded = record_steps(record, start, start + int(steps))
    marks = sorted({*recorded, start + int(steps)})

    plateau = None if margin_tol is None else MarginPlateau(problem, _norm_of(optimizer, layer), margin_tol)
    numbers = {"penalty": penalty, "gradient_tol": -1.0 if gradient_tol is None else gradient_tol}
    with jax.enable_x64(True):
        session = _Session(
            problem, objective, optimizer, of_head, trained, batch, numbers, np.dtype(dtype), batches, seed
        )
        if resumed is not None:
            session.resume(resumed)
        interrupted = session.advance(start, marks, callback, plateau)
        return session.result(optimizer, resumed, recorded, interrupted, seed)


class _Session:
    """The slices of one call of :func:`train`, and what they have recorded."""

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        of_head: Arrays,
        trained: Arrays,
        batch: tuple[int, ...],
        numbers: dict[str, float],
        dtype: np.dtype,
        batches: MiniBatches | None,
        seed: int,
    ) -> None:
        self.problem, self.objective, self.batch = problem, objective, batch
        self.num_trials = int(np.prod(batch, dtype=np.int64))
        self.trial_size = problem.canonical.allowed[(0,) * len(problem.batch_shape)].size * max(
            problem.dim, problem.key_dim
        )
        self.slices = slices(self.num_trials, self.trial_size)
        rule = rule_of(optimizer)
        # how many records one call holds depends on shapes alone, so that no number of steps compiles anything anew
        row = len(self.slices[0]) * sum(x[0].size for x in trained.values())
        capacity = int(np.clip(_RECORDED_NUMBERS_A_CALL // row, 1, _MOST_RECORDS_A_CALL))
        watches = numbers["gradient_tol"] >= 0
        self.program: Program = program(objective, rule, capacity, batches, watches)
        self.fixed = {name: x for name, x in of_head.items() if name not in objective.head_names}
        data = TrialData(problem, dtype)
        scalars = {name: np.asarray(number, dtype) for name, number in rule.numbers.items()}
        constants = {name: np.asarray(number, dtype) for name, number in numbers.items()}
        # making a key takes as long as a hundred steps
        key = np.zeros(2, np.uint32) if batches is None else np.asarray(jax.random.PRNGKey(seed))
        self.inputs: list[Inputs] = []
        self.states: list[State] = []
        for part in self.slices:
            fixed = {name: data.last(x, part) for name, x in self.fixed.items()}
            moved = {name: trials_last(x[part], dtype) for name, x in trained.items()}
            self.inputs.append(Inputs(data.take(part), fixed, scalars, **constants, key=key))
            self.states.append(self.program.start(moved))
        self.executable = self.program.compiled(self.states[0], self.inputs[0])
        self.observed_steps: list[int] = []
        self.observed: list[Observation] = []  # arrays (steps observed, ..., trials)

    def resume(self, run: Run) -> None:
        """Go on from the optimiser's state and the counts of an earlier run."""
        leaves, structure = jax.tree.flatten(self.states[0].optimizer)
        kept = [
            np.reshape(run.optimizer_state[str(i)], (self.num_trials, *np.shape(x)[len(self.batch) :]))
            for i, x in enumerate(run.optimizer_state.values())
        ]
        steps = np.broadcast_to(np.asarray(run.step, np.int64), self.batch).reshape(-1)
        for i, part in enumerate(self.slices):
            state = self.states[i]._replace(steps=jax.device_put(steps[part]))
            # another optimiser starts afresh
            if [x.shape[1:] for x in kept] == [leaf.shape[:-1] for leaf in leaves]:
                moved = [trials_last(x[part], leaf.dtype) for x, leaf in zip(kept, leaves, strict=True)]
                state = state._replace(optimizer=jax.tree.unflatten(structure, jax.device_put(moved)))
            self.states[i] = state

    def advance(
        self,
        start: int,
        marks: list[int],
        callback: Callback | None,
        plateau: MarginPlateau | None,
    ) -> bool:
        """Make the steps up to the last mark and observe at each mark; return whether the run was interrupted."""
        checks = [] if plateau is None else plateau.checks(start, marks[-1])
        marks = sorted({*marks, *checks})
        began = time.perf_counter()
        threads = min(num_threads(), len(self.slices)) if self.program.rule.concurrent else 1
        # a guess at the length of the first stretch; how long that took sets the next
        work = self.trial_size * len(self.slices[0]) * -(-len(self.slices) // threads)
        budget = max(1, int(_SECONDS_A_CALL / max(2e-6, 1e-8 * work)))
        done = start
        try:
            with workers(threads) as spread:
                while marks:
                    # no stretch goes past a check, after which some trials may stand still
                    until = next((check for check in checks if check > done), marks[-1])
                    ahead = [mark for mark in marks if mark <= until]
                    lengths = segment_lengths(done, ahead, budget, self.program.num_records)
                    before = time.perf_counter()
                    results = spread(self._stretch(lengths), range(len(self.slices)))
                    took = time.perf_counter() - before
                    self._keep(results, done + np.cumsum(lengths))
                    if sum(lengths):
                        budget = max(1, int(sum(lengths) * _SECONDS_A_CALL / max(took, 1e-6)))
                        done += sum(lengths)
                    if plateau is not None and done in checks:
                        self._end_at_plateau(plateau)
                    goal, marks = marks[-1], [mark for mark in marks if mark not in self.observed_steps]
                    if callback is not None and callback(self._progress(done, goal, time.perf_counter() - began)):
                        return bool(marks)
        except KeyboardInterrupt:
            if not self.observed:
                self._keep([self._stretch([0])(i) for i in range(len(self.slices))], np.array([start]))
            return bool(marks)
        return False

    def _end_at_plateau(self, plateau: MarginPlateau) -> None:
        last = self.observed[-1]
        parameters = {name: self._first(x[-1]) for name, x in last.parameters.items()}
        head_names = self.objective.head_names
        of_attention = {name: x for name, x in parameters.items() if name not in head_names}
        selected = self._per_query(last.selected[-1], -1, 0)
        reached = plateau.reached(selected, self.objective.attention.weights(of_attention)).reshape(-1)
        for i, part in enumerate(self.slices):
            status = np.asarray(self.states[i].status)
            status = np.where(reached[part] & (status == RUNNING), CONVERGED, status).astype(np.int8)
            self.states[i] = self.states[i]._replace(status=jax.device_put(status))

    def _stretch(self, lengths: list[int]) -> Callable[[int], tuple[State, Observation]]:
        padded = np.zeros(self.program.num_records, np.int64)
        padded[: len(lengths)] = lengths

        def call(i: int) -> tuple[State, Observation]:
            # the context of float64 belongs to a thread
            with jax.enable_x64(True):
                result = self.executable(self.states[i], self.inputs[i], padded, np.int64(len(lengths)))
                return jax.block_until_ready(result)

        return call

    def _keep(self, results: list[tuple[State, Observation]], steps: np.ndarray) -> None:
        def join(*parts: Any) -> np.ndarray:
            joined = np.concatenate([np.asarray(part)[: len(steps)] for part in parts], axis=-1)
            return joined[..., : self.num_trials]

        self.states = [state for state, _ in results]
        self.observed.append(jax.tree.map(join, *(seen for _, seen in results)))
        self.observed_steps += steps.tolist()

    def _progress(self, done: int, goal: int, seconds: float) -> Progress:
        last = self.observed[-1]
        loss, probability = float(np.mean(last.loss[-1])), float(np.median(last.probability[-1]))
        return Progress(done, goal, seconds, loss=loss, probability=probability)

    def result(
        self,
        optimizer: optax.GradientTransformation,
        resumed: Run | None,
        recorded: list[int],
        interrupted: bool,
        seed: int,
    ) -> Run:
        """The run, of the last state and all that was observed."""
        everything: Any = jax.tree.map(lambda *x: np.concatenate(x), *self.observed)
        steps = np.array(self.observed_steps, dtype=np.int64)
        rows = np.flatnonzero(np.isin(steps, recorded))
        layer, head_names = self.objective.attention, self.objective.head_names

        parameters = {name: self._first(x, 1) for name, x in everything.parameters.items()}
        weights = layer.weights({name: x for name, x in parameters.items() if name not in head_names})
        history = {
            "steps": steps,
            "loss": self._first(everything.loss, 1),
            "probability": self._per_query(everything.probability, 0.0, 1),
            "selected": self._per_query(everything.selected, -1, 1),
            "weights": weights,
            **{name: parameters[name] for name in head_names},
        }
        final = {name: x[-1] for name, x in history.items()}
        if np.isnan(final["loss"]).any():
            # no step leads here: the start did
            raise ProblemError("init: the loss is not a number there, or a logit overflows; start elsewhere")
        history = {name: x[rows] for name, x in history.items()}
        if resumed is not None:
            history = {name: np.concatenate([resumed.history[name], x]) for name, x in history.items()}

        # argmax of no True is 0, which the second argument of where replaces
        imprecise = self._first(everything.largest_logit > _PRECISE_LOGIT, 1)
        precise_until = np.where(imprecise.any(axis=0), steps[imprecise.argmax(axis=0)], -1)
        if resumed is not None:
            earlier = np.asarray(-1 if resumed.precise_until is None else resumed.precise_until)
            precise_until = np.where(earlier >= 0, earlier, precise_until)
        state: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=-1)[..., : self.num_trials], *self.states)
        ends = (
            Status.INTERRUPTED if interrupted else Status.FINISHED,
            Status.STALLED,
            Status.NON_FINITE,
            Status.CONVERGED,
        )
        names = np.array([status.value for status in ends])
        fixed = {
            name: np.broadcast_to(x, self.batch + x.shape[len(self.problem.batch_shape) :])
            for name, x in self.fixed.items()
        }
        return Run(
            weights=final["weights"],
            parameters={name: x[-1] for name, x in parameters.items()} | fixed,
            selected=final["selected"],
            probability=final["probability"],
            loss=plain(final["loss"]),
            history=history,
            status=plain_status(names[self._first(state.status)]),
            step=plain(self._first(state.steps)),
            precise_until=plain(precise_until),
            attention=layer.name,
            head=self.objective.head.name,
            optimizer=getattr(optimizer, "name", "optax"),
            norm=getattr(optimizer, "norm", None),
            limit=optimizer.limit(layer.name) if isinstance(optimizer, Optimizer) else Limit(None),
            seed=seed,
            optimizer_state={str(i): self._first(leaf) for i, leaf in enumerate(jax.tree.leaves(state.optimizer))},
            optimizer_config=configuration(optimizer),
            live_optimizer=optimizer,
        )

    def _per_query(self, x: np.ndarray, padded: float, after: int) -> np.ndarray:
        """As :meth:`_first`, with a value for padded queries and without the Q axis that a problem lacks."""
        x = np.where(self.problem.canonical.active, self._first(x, after), padded).astype(x.dtype)
        return x if self.problem.has_query_axis else x[..., 0]

    def _first(self, x: np.ndarray, after: int = 0) -> np.ndarray:
        """The trailing axis of trials as batch axes, in front of all axes but the first ``after``."""
        x = np.moveaxis(x, -1, after)
        return np.ascontiguousarray(x).reshape((*x.shape[:after], *self.batch, *x.shape[after + 1 :]))


def _default_optimizer(layer: Attention) -> Optimizer:
    if layer.name == "factored":
        return normalized_gradient_descent(0.01, scope="all", relative=True)
    return normalized_gradient_descent(0.1)


def _norm_of(optimizer: optax.GradientTransformation, layer: Attention) -> Norm:
    """The norm in which margins grow: that of the optimiser, and for a Euclidean one on factors the nuclear norm."""
    norm = getattr(optimizer, "norm", None) or Lp(2.0)
    return Nuclear() if layer.name == "factored" and norm == Lp(2.0) else norm


def _mini_batches(size: int | None, problem: Problem) -> MiniBatches | None:
    n = problem.tokens.shape[-3]
    if size is None or size == n:
        return None
    if not (isinstance(size, int | np.integer) and 1 <= size < n):
        raise ProblemError(f"batch_size: {size!r} found, an integer of 1 to n = {n} wanted")
    return MiniBatches(n, int(size))
