"""Which norm's margin an optimiser maximises, measured."""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm._utils.progress import Callback, reports
from attsvm.datasets import random_problem
from attsvm.errors import ProblemError
from attsvm.norms import Norm, parse_norm
from attsvm.problem import ARRAY_NAMES, Problem, check_is_problem, join_blocks, stack_problems
from attsvm.profiles.entries import without_decay
from attsvm.profiles.named import stepped
from attsvm.profiles.readings import PACES, SCHEDULES, ProblemPart, Reading
from attsvm.profiles.result import MarginProfile
from attsvm.profiles.stepped import SEEDS, STEPS, Arrays, ProfileTask, RateFactor
from attsvm.profiles.verdict import VerdictOutcome, chosen, ends_early, outcome, reason, settled, written
from attsvm.results import Status
from attsvm.training import parse_attention

_OF_ENTRIES = ("l1", "l1.5", "l1.75", "frobenius", "l3", "linf")
NORMS = (*_OF_ENTRIES, "spectral", "nuclear", "schatten1.5", "l2,1", "linf,2", "l2,1-columns", "linf,2-columns")
"""The norms that a profile compares by default, beside that of the optimiser."""

FIRST_PROBLEMS = 8
"""How many of the default problems are trained before it is known whether more are needed."""

FEWEST_STEPS = 4
"""Of each schedule: its readings are at fractions of the steps."""

_UNDERFLOW = 0.05


@reports("profile")
def margin_profile(
    optimizer: Any,
    problems: Problem | None = None,
    *,
    norms: Iterable[str | float | Norm] | None = None,
    seeds: int = SEEDS,
    steps: int = STEPS,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    attention: str | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> MarginProfile:
    """Train with an optimiser, and find the norm whose margin it maximises.

    The problems are trained with several schedules of the steps, on the exact gradient divided by its norm, until one
    of them gives the answer, and once on the gradient itself. The norm with the largest margin ratio is the answer if
    the attention is saturated, the steps are short, the mean ratio is at least 0.95, it is the largest in nine of ten
    problems, and the second largest is clearly smaller. Otherwise the profile is inconclusive and says why. A norm that
    is not compared cannot be the answer: ℓ2.2 mirror descent is closest to the Frobenius norm in the default list.

    Parameters
    ----------
    optimizer : optax.GradientTransformation, callable, type or str
        An optimiser of :mod:`attsvm.optimizers` or optax; a function that returns one for a learning rate, such as
        ``optax.adam``; a class of PyTorch optimisers, such as ``torch.optim.Adam``; a function that returns one for a
        list of parameters; or the name of any of these. The updates of a transformation that is given as an object are
        multiplied by the factors of the schedules.
    problems : Problem, optional
        A batch of labelled problems with linear heads. By default ``random_problem(6, 8, 10, seed)`` of several seeds.
    norms : iterable of str, float or Norm, optional
        As for :func:`attsvm.solve_svm`; at least two that differ. By default thirteen norms, and that of the optimiser
        if it is one of :mod:`attsvm.optimizers` (of K and Q, that which its steps induce on KQ').
    seeds : int
        Number of default problems at most. Eight are trained; the others are needed only if the intervals of two norms
        overlap.
    steps : int
        Of each run at most, at least 4. A schedule ends earlier if two looks in a row say the same.
    batch_size : int, optional
        Sequences in a step, drawn as :func:`attsvm.train` draws them. By default all sequences.
    learning_rate : float, optional
        Base learning rate of the four schedules. By default it is found while the optimiser trains: such that the first
        steps change a logit by 0.3 (if this gives no answer, by 1), and step k by (1 + k/1000)^(−1/3) of that.
    attention : str, optional
        As for :func:`attsvm.train`: "factored" trains K and Q.
    device : str, optional
        Where to train, as for :func:`attsvm.train`. By default that of JAX; the CPU for PyTorch optimisers.
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
    Theorems cover gradient descent and mirror descent on W and p. For other optimisers the answer is a measurement on
    these problems; ``attsvm reproduce optimizer-norms`` has more of them.

    Examples
    --------
    >>> import attsvm
    >>> profile = attsvm.margin_profile(attsvm.optimizers.normalized_gradient_descent, seeds=1, steps=1000,
    ...                                 norms=["l1", "frobenius", "linf"])
    >>> profile.verdict
    'frobenius'
    """
    steps = check_integer("steps", steps, FEWEST_STEPS)
    one = stepped(optimizer, learning_rate)
    problem = _standard(seeds) if problems is None else _batch(problems)
    layer = parse_attention(attention, problem, None)
    if problem.num_biases and layer.name == "factored":
        raise ProblemError(
            "problems: expected problems without bias_index for factored attention, because biases become negligible "
            "beside KQ'; the profile without them is that of KQ'"
        )
    given: Iterable[str | float | Norm] = [*NORMS, *one.norms(layer.name)] if norms is None else norms
    parsed = _distinct(problem, [parse_norm(norm) for norm in given])
    if len(parsed) < 2:
        raise ProblemError(f"norms: expected at least two different ones, got {len(parsed)}")
    size = None if batch_size == problem.num_sequences else batch_size
    decays = one.decays_weights(layer.shapes(problem))
    names = tuple(norm.name for norm in parsed)
    task = ProfileTask(problem, layer.name, _start(problem, layer.shapes(problem)), (steps,), normalize=True)
    task = replace(task, batch_size=size, device=device)
    count = len(problem.tokens)
    first = min(count, FIRST_PROBLEMS) if problems is None else count
    rows = [slice(0, first), slice(first, count)]
    parts = [ProblemPart(one, task, part, parsed) for part in rows if part.start < count]
    readings: dict[str, tuple[Reading, Reading]] = {}
    outcomes: list[VerdictOutcome] = []
    factors: dict[str, RateFactor] = {}
    schedules = tuple(PACES if learning_rate is None else SCHEDULES)
    for schedule in schedules:
        overall = _overall(callback, steps, len(schedules), len(outcomes), f"{schedule} steps")
        factors[schedule] = parts[0].factor(schedule)
        readings[schedule], said = _until_settled(parts[0], schedule, factors[schedule], names, overall)
        outcomes.append(said)
        interrupted = readings[schedule][1].interrupted
        if interrupted or settled(outcomes):
            break
    if chosen(outcomes).open and not interrupted:
        for part in parts[1:]:
            for schedule, found in readings.items():
                stage = f"{schedule} steps, more problems"
                overall = _overall(callback, steps, len(schedules), schedules.index(schedule), stage)
                more = list(part.readings(factors[schedule], {each.step: None for each in found}, overall))
                readings[schedule] = found[0].joined(more[0]), found[1].joined(more[-1])
        losses = np.concatenate([part.losses for part in parts])
        outcomes = [outcome(schedule, names, losses, *found) for schedule, found in readings.items()]
    else:
        parts = parts[:1]
    best = chosen(outcomes)
    own = names.index(best.norm)
    interrupted = any(last.interrupted for _, last in readings.values())
    raw, underflows = None, False
    if best.conclusive and not interrupted:
        overall = _overall(callback, steps, len(schedules), len(schedules), "gradient not divided by its norm")
        made = readings[best.schedule][1].step
        ends = [[*part.readings(factors[best.schedule], [made], overall, normalize=False)][-1] for part in parts]
        interrupted = any(end.interrupted for end in ends)
        raw = np.concatenate([end.ratios for end in ends])
        ended = not interrupted and all(end.finite for end in ends)
        underflows = ended and bool(raw[:, own].mean() < best.mean - _UNDERFLOW)
    conclusive = best.conclusive and not interrupted
    without = ""
    if decays and problems is None and learning_rate is None:
        trained = "K and Q" if layer.name == "factored" else "W"
        setting = trained if size is None else f"{trained}, mini-batches of {size}"
        without = without_decay(optimizer, setting, readings[best.schedule][1].step)
    cause, why = ("interrupted", "interrupted.") if interrupted else reason(best, decays, without)
    if raw is not None and underflows:
        why += (
            f" With the gradient itself, not divided by its norm, the ratio is {written(raw[:, own].mean())}: the "
            "gradient becomes too small for the optimiser."
        )
    rate, factor = one.learning_rate, factors[best.schedule]
    if rate is not None:
        rate *= factor.first
    halves, lasts = zip(*readings.values(), strict=True)
    return MarginProfile(
        Status.INTERRUPTED if interrupted else Status.FINISHED,
        np.stack([last.ratios for last in lasts]),
        np.stack([half.ratios for half in halves]),
        raw,
        np.stack([last.decided for last in lasts]),
        np.stack([np.maximum(half.change, last.change) for half, last in readings.values()]),
        norm=parsed[own] if conclusive else None,
        verdict=best.norm if conclusive else "inconclusive",
        reason=why,
        cause=cause,
        chosen=best.schedule,
        underflows=underflows,
        norms=names,
        schedules=tuple(readings),
        optimizer=one.name,
        attention=layer.name,
        learning_rate=rate,
        steps=steps,
        batch_size=size,
        steps_made=tuple(last.step for last in lasts),
        unfinished=not interrupted and best.unfinished and readings[best.schedule][1].step == steps,
    )


def _until_settled(
    part: ProblemPart, schedule: str, factor: RateFactor, names: tuple[str, ...], callback: Callback | None
) -> tuple[tuple[Reading, Reading], VerdictOutcome]:
    """The last two readings of a schedule, which ends when more steps are not expected to change what it says."""
    steps = part.steps
    found: list[Reading] = []
    said: list[VerdictOutcome] = []
    with closing(part.readings(factor, [steps // k for k in (16, 8, 4, 2, 1) if k <= steps], callback)) as readings:
        for reading in readings:
            found.append(reading)
            growth = factor.growth(reading.step, steps)
            said.append(outcome(schedule, names, part.losses, found[-2:][0], reading, growth))
            if ends_early(said):
                break
    return (found[-2:][0], found[-1]), said[-1]


def _overall(callback: Callback | None, steps: int, runs: int, place: int, stage: str) -> Callback | None:
    """Return a callback for one of the runs, which counts the steps of the runs before it as if none ended early."""
    if callback is None:
        return None
    total = (runs + 1) * steps
    return lambda at: callback(replace(at, step=at.step + place * steps, steps=total, stage=stage))


def _distinct(problem: Problem, norms: list[Norm]) -> list[Norm]:
    """The norms that differ; of a prompt several norms of matrices are the same norm of vectors."""
    return list(dict.fromkeys(norm if problem.has_queries else norm.of_vectors for norm in norms))


def _standard(seeds: int) -> Problem:
    return stack_problems(random_problem(6, 8, 10, seed) for seed in range(check_integer("seeds", seeds, 1)))


def _batch(problems: Problem) -> Problem:
    """The problems along one batch axis."""
    check_is_problem(problems, "problems")
    problems.check_one_head()
    problems = problems.binary
    if problems.labels is None or problems.head is None:
        raise ProblemError("problems: expected labels ±1 and linear heads")
    batch = len(problems.batch_shape)
    arrays = {name: getattr(problems, name) for name in ARRAY_NAMES}
    return Problem(**{name: x.reshape(-1, *x.shape[batch:]) for name, x in arrays.items() if x is not None})


def _start(problem: Problem, shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Draw entries from N(0, 1/d), of W and of biases if there are any."""
    generator = np.random.default_rng(0)
    sizes = {name: (*problem.batch_shape, *shape) for name, shape in shapes.items()}
    start = {name: generator.standard_normal(size) / np.sqrt(size[1]) for name, size in sizes.items()}
    if problem.num_biases and "W" in start:
        start["W"] = join_blocks(*problem.terms.split(start["W"]))
    return start
