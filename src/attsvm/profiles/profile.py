"""Which norm's margin an optimizer maximises, measured."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.checks import check_integer
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.measures import attention_of, margin, token_logits
from attsvm.norms import Norm, parse_norm
from attsvm.problem import ARRAY_NAMES, Problem, check_is_problem
from attsvm.profiles.named import stepped
from attsvm.profiles.result import MarginProfile
from attsvm.profiles.stepped import Arrays, Factor, Task
from attsvm.profiles.verdict import Outcome, chosen, disagreement, outcome, reason, written
from attsvm.progress import reports
from attsvm.results import Callback, Status
from attsvm.selection import selected_tokens
from attsvm.svm import solve_svm
from attsvm.training.attention import parse_attention

SCHEDULES: dict[str, Factor] = {
    "constant": lambda k: 1.0 + 0.0 * k,
    "decaying": lambda k: (1.0 + k / 1000) ** (-1 / 3),
    "long decaying": lambda k: 10.0 * (1.0 + k / 1000) ** (-1 / 3),
    "growing": lambda k: 1.0 + k / 100,
}
"""Factors of the learning rate at step k."""

NORMS = ("l1", "l1.5", "l1.75", "frobenius", "l3", "linf", "spectral", "nuclear", "schatten1.5", "l2,1", "linf,2")

_DECIDED = 1e-6
_UNDERFLOW = 0.05


@reports("profile")
def margin_profile(
    optimizer: Any,
    problems: Problem | None = None,
    *,
    norms: Iterable[str | float | Norm] = NORMS,
    seeds: int = 20,
    steps: int = 20_000,
    learning_rate: float | None = None,
    attention: str | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> MarginProfile:
    """Train with an optimizer, and answer which norm's margin it maximises.

    Each problem is trained with several schedules of the steps, on the exact gradient divided by its norm, and once on
    the gradient itself. The norm with the largest margin ratio is the answer if the attention is saturated, the steps
    are short, the mean ratio is at least 0.95, it is the largest in nine of ten problems, and the second largest is
    clearly smaller. Otherwise the profile is inconclusive and says why. A norm that is not compared cannot be the
    answer: ℓ2.2 mirror descent is closest to the Frobenius norm in the default list.

    Parameters
    ----------
    optimizer : optax.GradientTransformation, callable, type or str
        An optimizer of :mod:`attsvm.optimizers` or optax; a function that returns one for a learning rate, such as
        ``optax.adam``; a class of PyTorch optimizers, such as ``torch.optim.Adam``; a function that returns one for a
        list of parameters; or the name of any of these. The updates of a transformation that is given as an object are
        multiplied by the factors of the schedules.
    problems : Problem, optional
        A batch of labelled problems with linear heads. By default ``random_problem(6, 8, 10, seed)`` of several seeds.
    norms : iterable of str, float or Norm
        As for :func:`attsvm.solve_svm`; at least two that differ.
    seeds : int
        Number of default problems.
    steps : int
        Of each run, at least 4.
    learning_rate : float, optional
        By default that of a PyTorch optimizer, the default value of a function's ``learning_rate``, or 0.1.
    attention : str, optional
        As for :func:`attsvm.train`: "factored" trains K and Q.
    device : str, optional
        Where to train, as for :func:`attsvm.train`. By default that of JAX; the CPU for PyTorch optimizers.
    callback : callable, optional
        Receives a :class:`attsvm.Progress` now and then. If it returns True, the profile ends.
    progress : bool
        Show the progress, as :func:`attsvm.train` does.

    Returns
    -------
    MarginProfile
        With ``verdict``, ``reason`` and ``ratios``.

    Raises
    ------
    ProblemError
        If an argument is not as described.

    See Also
    --------
    attsvm.MarginProfile : The result.
    attsvm.margin_ratio : The measure.
    attsvm.predict_direction : What theory says of a run.

    Notes
    -----
    Theorems cover gradient descent and mirror descent on W and p. For other optimizers the answer is a measurement on
    these problems; ``attsvm reproduce optimizer-norms`` has more of them.

    Examples
    --------
    >>> import attsvm
    >>> profile = attsvm.margin_profile(attsvm.optimizers.normalized_gradient_descent, seeds=1, steps=1000,
    ...                                 norms=["l1", "frobenius", "linf"])
    >>> profile.verdict
    'frobenius'
    """
    steps = check_integer("steps", steps, 4)
    one = stepped(optimizer, learning_rate)
    problem = _standard(seeds) if problems is None else _batch(problems)
    layer = parse_attention(attention, problem, None)
    parsed = _distinct(problem, [parse_norm(norm) for norm in norms])
    if len(parsed) < 2:
        raise ProblemError(f"norms: expected at least two different ones, got {len(parsed)}")
    decays = one.decays_weights(layer.shapes(problem))
    names = tuple(norm.name for norm in parsed)
    ratios = _MarginRatios(problem, parsed)
    task = Task(problem, layer.name, _start(problem, layer.shapes(problem)), steps, normalize=True, device=device)
    half_ratios, last_ratios, decided, changes = [], [], [], []
    outcomes: list[Outcome] = []
    for schedule, factor in SCHEDULES.items():
        overall = _overall(callback, steps, len(outcomes), f"{schedule} steps")
        made = one.trajectory(replace(task, callback=overall), factor)
        half_ratios.append(ratios(made.weights[1]))
        last_ratios.append(ratios(made.weights[-1]))
        decided.append(_decided(problem, made.weights[-1]))
        changes.append(made.logit_change)
        outcomes.append(
            outcome(schedule, names, last_ratios[-1], half_ratios[-1], decided[-1], changes[-1], made.finite)
        )
        if made.interrupted:
            break
    best = chosen(outcomes)
    overall = _overall(callback, steps, len(outcomes), "gradient not divided by its norm")
    raw_task = replace(task, normalize=False, callback=overall)
    of_raw = None if made.interrupted else one.trajectory(raw_task, SCHEDULES[best.schedule])
    interrupted = of_raw is None or of_raw.interrupted
    raw = None if of_raw is None else ratios(of_raw.weights[-1])
    own = names.index(best.norm)
    underflows = (
        raw is not None and of_raw is not None and of_raw.finite and bool(raw[:, own].mean() < best.mean - _UNDERFLOW)
    )
    contrary = disagreement(outcomes)
    conclusive = best.conclusive and not contrary and not interrupted
    why = "interrupted." if interrupted else contrary or reason(best, decays)
    if underflows and raw is not None:
        why += (
            " On the gradient itself, which is not divided by its norm, the ratio is "
            f"{written(raw[:, own].mean())}: the gradient becomes too small for the optimizer."
        )
    return MarginProfile(
        Status.INTERRUPTED if interrupted else Status.FINISHED,
        np.stack(last_ratios),
        np.stack(half_ratios),
        raw,
        np.stack(decided),
        np.stack(changes),
        norm=parsed[own] if conclusive else None,
        verdict=best.norm if conclusive else "inconclusive",
        reason=why,
        chosen=best.schedule,
        underflows=underflows,
        norms=names,
        schedules=tuple(one.schedule for one in outcomes),
        optimizer=one.name,
        attention=layer.name,
        learning_rate=one.learning_rate,
        steps=steps,
    )


class _MarginRatios:
    """Margin ratios of weights in each norm; the Att-SVM of a selection is solved once."""

    def __init__(self, problem: Problem, norms: list[Norm]) -> None:
        self._problem, self._norms = problem, norms
        self._values: dict[tuple[int, int, bytes], float] = {}

    def __call__(self, weights: Float[np.ndarray, "S ..."]) -> Float[np.ndarray, "S N"]:
        """The ratios with the selection of the weights; 0 where no weights separate it."""
        of_queries = selected_tokens(token_logits(self._problem, weights), self._problem.canonical.allowed)
        selected = of_queries.reshape(self._problem.query_shape)
        margins = [np.asarray(margin(self._problem, weights, selected, norm)) for norm in self._norms]
        values = [[self._value(s, n, selected[s]) for s in range(len(weights))] for n in range(len(self._norms))]
        return np.transpose(np.asarray(margins) * np.asarray(values))

    def _value(self, s: int, n: int, selected: Int[np.ndarray, "*query"]) -> float:
        key = s, n, selected.tobytes()
        if key not in self._values:
            value = float(solve_svm(self._problem[s], selected, self._norms[n]).value)
            self._values[key] = value if np.isfinite(value) else 0.0
        return self._values[key]


def _overall(callback: Callback | None, steps: int, done: int, stage: str) -> Callback | None:
    """A callback for one of the runs, whose steps count those of the runs before it."""
    if callback is None:
        return None
    total = (len(SCHEDULES) + 1) * steps
    return lambda at: callback(replace(at, step=at.step + done * steps, steps=total, stage=stage))


def _decided(problem: Problem, weights: Float[np.ndarray, "S ..."]) -> Bool[np.ndarray, "S"]:
    """Whether every query drops all tokens but one."""
    dropped = 1 - attention_of(problem, weights).max(axis=-1)
    return np.asarray(((dropped <= _DECIDED) | ~problem.canonical.active).all(axis=(-2, -1)))


def _distinct(problem: Problem, norms: list[Norm]) -> list[Norm]:
    """The norms that differ; of a prompt several norms of matrices are the same norm of vectors."""
    return list(dict.fromkeys(norm if problem.has_queries else norm.of_vectors for norm in norms))


def _standard(seeds: int) -> Problem:
    each = [random_problem(6, 8, 10, seed) for seed in range(check_integer("seeds", seeds, 1))]
    names = ("tokens", "labels", "queries", "head")
    return Problem(**{name: np.stack([getattr(problem, name) for problem in each]) for name in names})


def _batch(problems: Problem) -> Problem:
    """The problems along one batch axis."""
    check_is_problem(problems, "problems")
    problems.check_one_head()
    if problems.labels is None or problems.head is None or problems.num_classes is not None:
        raise ProblemError("problems: expected labels ±1 and linear heads")
    batch = len(problems.batch_shape)
    arrays = {name: getattr(problems, name) for name in ARRAY_NAMES}
    return Problem(**{name: x.reshape(-1, *x.shape[batch:]) for name, x in arrays.items() if x is not None})


def _start(problem: Problem, shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Entries N(0, 1/d)."""
    generator = np.random.default_rng(0)
    sizes = {name: (*problem.batch_shape, *shape) for name, shape in shapes.items()}
    return {name: generator.standard_normal(size) / np.sqrt(size[1]) for name, size in sizes.items()}
