"""Campaign (a): random, degenerate and badly scaled Att-SVMs of every norm, in single calls and in batches.

Every answer is checked from its public fields by :mod:`harness.exact`, in integers and 60 digits. A share of the
answers to well-scaled problems is compared with HiGHS or Clarabel. ``repeat(case, index)`` solves one again.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import attsvm
from harness.campaign import Campaign, Outcome
from harness.exact import Rows, check_soft, check_solution, soft_objective
from harness.solve_oracles import disagreement, least_violation

NORMS = ("frobenius", "l1", "l1.05", "l1.3", "l1.75", "l3", "l8", "linf", "nuclear", "spectral")

WELL_SCALED = ("random", "whole numbers", "duplicates", "low rank", "zero queries", "large")
BADLY_SCALED = ("token scales", "feature scales", "query scales", "all scales", "one scale", "nearly infeasible")

SINGLE, GROUPS, GROUP = 26, 3, 8
"""A case has so many problems of their own, and so many batches of so many problems."""

MARGINS, SOFT = 6, 4
"""Then follow problems whose margins contradict each other, and soft margins with long tokens."""

PROVED = 1e-3
"""A contradiction of this part of the margins must be proved, whatever the rounding."""

ORACLE_SHARE = 1 / 25


@dataclass(frozen=True)
class Task:
    """One problem, or a batch with a leading axis on keys and queries."""

    kind: str
    norm: str
    keys: np.ndarray  # (..., n, T, d_k)
    queries: np.ndarray | None  # (..., n, Q, d_q)
    allowed: np.ndarray  # (n, Q, T)
    sets: np.ndarray  # (..., n, Q, T)
    relaxed: np.ndarray | None  # (n, Q)
    slack: float | None
    warm: bool
    required: np.ndarray | None = None  # (n, Q, T)
    contradiction: float = 0.0  # relative to the margins that contradict each other

    @property
    def well_scaled(self) -> bool:
        return self.kind in WELL_SCALED and (self.slack is None or 1e-6 <= self.slack <= 1e6)

    @property
    def has_refused_rows(self) -> bool:
        """Whether a row is nearly or really shorter than 1e-90, but not 0, or longer than 1e90, or squares overflow."""
        keys = self.keys.astype(np.longdouble)  # whose squares do not overflow
        reference = np.take_along_axis(keys[..., None, :, :], self.sets.argmax(axis=-1)[..., None, None], axis=-2)
        lengths = np.linalg.norm(keys[..., None, :, :] - reference, axis=-1)
        if self.queries is not None:
            lengths = lengths * np.linalg.norm(self.queries.astype(np.longdouble), axis=-1)[..., None]
        rows = lengths[np.broadcast_to(self.allowed, lengths.shape) & (lengths > 0)]
        return bool(((rows < 1.01e-90) | (rows > 0.99e90)).any() or np.abs(keys).max() > 1e150)

    def solve(self) -> attsvm.Solution:
        """The answer of attsvm, with a Q axis wherever there are queries."""
        prompt = self.queries is None
        mask = self.allowed[..., 0, :] if prompt else self.allowed
        lead = self.keys.shape[:-3]
        problem = attsvm.Problem(
            self.keys, queries=self.queries, mask=np.broadcast_to(mask, lead + mask.shape) if lead else mask
        )
        sets = self.sets[..., 0, :] if prompt else self.sets
        several = self.sets.sum(axis=-1).max() > 1
        relaxed = self.relaxed if self.relaxed is None or not prompt else self.relaxed[:, 0]
        if relaxed is not None and lead:
            relaxed = np.broadcast_to(relaxed, lead + relaxed.shape)
        selected = sets if several else sets.argmax(axis=-1)
        options: dict[str, Any] = {"relaxed": relaxed, "slack": self.slack, "required": self.required}
        solution = attsvm.solve_svm(problem, selected, self.norm, **options)
        if self.warm and self.slack is None:
            solution = attsvm.solve_svm(problem, selected, self.norm, warm_start=solution, **options)
        return solution

    def rows(self, k: int | None) -> Rows:
        """The constraints of the k-th problem of a batch, from the definition."""
        keys, sets, queries = self.keys, self.sets, self.queries
        if k is not None:
            keys, sets, queries = keys[k], sets[k], None if queries is None else queries[k]
        return Rows.of(keys, queries, self.allowed, sets, self.relaxed, self.required)

    def lacks(self, rows: Rows, solution: attsvm.Solution) -> str:
        """What an answer of the last two kinds could do better, if it is not optimal; empty if nothing."""
        if self.required is not None and solution.status == "inaccurate":
            least = least_violation(rows)
            if self.contradiction >= PROVED or (solution.bound == 0 and solution.violation > 1e-9):
                return f"a contradiction of {self.contradiction:.1e} not proved, bound {solution.bound:.1e}"
            if solution.raw_violation > 2 * least + 1e-9:
                return f"violation {solution.raw_violation:.1e}, possible {least:.1e}"
        if self.kind == "scaled soft margins" and self.slack is not None:
            hard = replace(self, slack=None).solve()
            zero = np.zeros(rows.shape)
            simple = [zero] if hard.status == "infeasible" else [zero, np.asarray(hard.direction)]
            best = min(soft_objective(rows, self.slack, each) for each in simple)
            found = soft_objective(rows, self.slack, np.asarray(solution.direction))
            if found > best * (1 + 1e-8):
                return f"objective {float(found):.3e}, of W = 0 or the hard margin {float(best):.3e}"
        return ""


class Solves(Campaign):
    """Every answer is what it claims to be."""

    name: ClassVar[str] = "solves"
    unit: ClassVar[str] = "solves"
    full: ClassVar[int] = 100_000
    small: ClassVar[tuple[int, ...]] = tuple(range(16))

    def check(self, case: int) -> Outcome:
        """The problems of one case."""
        checked, failures, counts = 0, [], Counter[str]()
        for index in range(SINGLE + GROUPS + MARGINS + SOFT):
            found = list(repeat(case, index))
            checked += len(found)
            for where, what, status in found:
                counts[status] += 1
                failures += [f"{where}: {what}"] if what else []
        return Outcome(checked, tuple(failures), counts)


CAMPAIGN = Solves()


def repeat(case: int, index: int) -> Iterator[tuple[str, str, str]]:
    """Solve one problem or batch of a case: where it is, what is wrong (or nothing), and how each problem ended."""
    task = task_of(case, index)
    generator = np.random.default_rng([case, index, 1])
    lead = self_or_batch(task)
    where = f"repeat({case}, {index}) ({task.kind}, {task.norm}{'' if task.slack is None else ', slack'})"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            solution = task.solve()
    except attsvm.ProblemError as error:
        refused = task.has_refused_rows and "between 1e-90 and 1e+90" in str(error)
        for _ in lead:
            yield where, "" if refused else str(error)[:150], "badly scaled: refused"
        return
    except Exception as error:  # whatever it is, it is a defect
        for _ in lead:
            yield where, f"{type(error).__name__}: {str(error)[:150]}", "raised"
        return
    for k in lead:
        own = solution if k is None else solution[k]
        rows = task.rows(k)
        status = str(own.status)
        wrong = check_solution(rows, task.norm, own) if task.slack is None else check_soft(rows, task.slack, own)
        if not wrong and status == "inaccurate" and task.well_scaled:
            wrong = f"inaccurate, gap {own.gap:.1e}, violation {own.violation:.1e}"
        wrong = wrong or task.lacks(rows, own)
        if not wrong and task.well_scaled and task.slack is None and generator.random() < ORACLE_SHARE:
            wrong = disagreement(rows, task.norm, own)
        scale = "well scaled" if task.well_scaled else "badly scaled"
        yield where if k is None else f"{where} [{k}]", wrong, f"{scale}: {status}"


def self_or_batch(task: Task) -> list[int | None]:
    """The indices of the problems of a task; None for a single one."""
    return list(range(task.keys.shape[0])) if task.keys.ndim == 4 else [None]


def task_of(case: int, index: int) -> Task:
    """The problem or the batch of a case with this index."""
    generator = np.random.default_rng([case, index])
    if index >= SINGLE + GROUPS + MARGINS:
        return _scaled_soft_margin(generator)
    if index >= SINGLE + GROUPS:
        return _contradiction(generator, case * MARGINS + index)
    batch = (GROUP,) if index >= SINGLE else ()
    kind = str(generator.choice(WELL_SCALED + BADLY_SCALED))
    norm = NORMS[(case * (SINGLE + GROUPS) + index) % len(NORMS)]
    shape = str(generator.choice(["prompt", "one query", "several queries", "causal"], p=[0.25, 0.4, 0.2, 0.15]))
    n, T, d_k, d_q = (int(generator.integers(1, top)) for top in (7, 8, 6, 6))
    if kind == "large":
        n, T, d_k, d_q = (int(generator.integers(low, top)) for low, top in ((4, 9), (4, 9), (6, 11), (4, 11)))
        shape = "one query" if shape in ("several queries", "causal") else shape
    Q = {"several queries": int(generator.integers(2, 4)), "causal": T}.get(shape, 1)
    if shape == "prompt":
        d_q = 1
    elif shape == "causal":
        n, d_q = 1, d_k
    keys = generator.standard_normal((*batch, n, T, d_k))
    queries = keys[..., :, :T, :].copy() if shape == "causal" else generator.standard_normal((*batch, n, Q, d_q))
    keys, queries = _degraded(generator, kind, keys, queries)
    allowed = np.ones((n, Q, T), bool)
    if shape == "causal":
        allowed &= np.tri(T, dtype=bool)
    hidden = generator.random()
    if hidden < 0.3:
        lengths = generator.integers(1, T + 1, n)
        allowed &= (np.arange(T) < lengths[:, None])[:, None]
    elif hidden < 0.5:
        allowed &= generator.random((n, Q, T)) < 0.7
    allowed[..., 0] = True
    sets = _selection(generator, keys, queries, allowed, shape == "prompt")
    relaxed = generator.random((n, Q)) < 0.4 if generator.random() < 0.15 else None
    slack = None
    if norm == "frobenius" and generator.random() < 0.4 and sets.sum(axis=-1).max() == 1:
        slack, relaxed = 10.0 ** generator.uniform(-6, 10), None
    warm = generator.random() < 0.05
    return Task(kind, norm, keys, None if shape == "prompt" else queries, allowed, sets, relaxed, slack, warm)


def _contradiction(generator: np.random.Generator, number: int) -> Task:
    """Margins of which some contradict each other: the last token of a sequence is opposite to some of the others."""
    n, T, d_k, d_q = (int(generator.integers(low, top)) for low, top in ((1, 4), (3, 7), (1, 4), (1, 3)))
    keys, queries = generator.standard_normal((n, T, d_k)), generator.standard_normal((n, 1, d_q))
    parts = generator.random(T - 2) * (generator.random(T - 2) < 0.7)
    parts[0] = 1.0
    if number % 3 == 0:
        keys, queries, parts = np.round(2 * keys), np.round(2 * queries), np.ceil(2 * parts)
    keys[0, -1] = keys[0, 0] + parts @ (keys[0, 0] - keys[0, 1:-1])
    weights = generator.standard_normal((d_k, d_q))
    images = (queries @ weights.T)[:, 0]
    margins = ((keys[:, :1] - keys) @ images[..., None])[..., 0] - (np.arange(n) > 0)[:, None] * generator.random(
        (n, T)
    )
    size = 10.0 ** generator.uniform(-9, 0)
    margins[0, -1] = -parts @ margins[0, 1:-1] + size * parts @ abs(margins[0, 1:-1])
    margins[1:, -1] = np.nan
    norm = (*NORMS, "l2,1", "l2,1-columns")[number % (len(NORMS) + 2)]
    sets = np.zeros((n, 1, T), bool)
    sets[..., 0] = True
    allowed, required = np.ones((n, 1, T), bool), margins[:, None]
    whole = 0.5 * size if queries[0].any() and keys[0, -1].any() else 0.0
    return Task("contradicting margins", norm, keys, queries, allowed, sets, None, None, False, required, whole)


def _scaled_soft_margin(generator: np.random.Generator) -> Task:
    """Long tokens, of one length or of several, or polynomial features of numbers far from 0."""
    n, T, d = (int(generator.integers(low, top)) for low, top in ((1, 7), (2, 7), (1, 6)))
    keys, most = generator.standard_normal((n, T, d)), generator.uniform(3, 44)
    shape = [(1,), (d,), (n, T, 1)][generator.integers(3)]
    keys = keys * 10.0 ** (most if shape == (1,) else generator.uniform(0, most, shape))
    if generator.random() < 0.25:
        far, near = 10.0 ** (most / 2), generator.integers(1, 9, (n, T)).astype(float)
        parts = [near * near, np.sqrt(2) * near * far, np.full((n, T), far * far), np.ones((n, T))]
        keys = np.stack(parts, axis=-1) * np.where(generator.random((n, T, 1)) < 0.5, -1, 1)
    sets = np.zeros((n, 1, T), bool)
    np.put_along_axis(sets, generator.integers(0, T, (n, 1, 1)), True, axis=-1)
    slack = 10.0 ** generator.uniform(-6, 10)
    return Task("scaled soft margins", "frobenius", keys, None, np.ones((n, 1, T), bool), sets, None, slack, False)


def _degraded(
    generator: np.random.Generator, kind: str, keys: np.ndarray, queries: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Keys and queries that are degenerate or badly scaled in one way."""

    def scales(shape: tuple[int, ...]) -> np.ndarray:
        low, high = (-10, 8) if generator.random() < 0.5 else sorted(generator.uniform(-10, 8, 2))
        return np.asarray(10.0 ** generator.uniform(low, high, shape))

    if kind == "whole numbers":
        keys, queries = np.round(keys), np.round(1.5 * queries)
    elif kind == "duplicates":
        keys[..., generator.integers(keys.shape[-2]), :] = keys[..., 0, :]
    elif kind == "low rank":
        size = keys.shape[-1]
        keys = keys @ generator.standard_normal((size, 1)) @ generator.standard_normal((1, size))
    elif kind == "zero queries":
        queries[..., generator.integers(queries.shape[-3]), :, :] = 0
    elif kind == "token scales":
        keys = keys * scales((*keys.shape[:-1], 1))
    elif kind == "feature scales":
        keys = keys * scales((keys.shape[-1],))
    elif kind == "query scales":
        queries = queries * scales((*queries.shape[:-1], 1))
    elif kind == "all scales":
        keys, queries = keys * scales(keys.shape), queries * scales(queries.shape)
    elif kind == "one scale":
        most = float(generator.choice([10, 100, 250]))
        keys, queries = keys * 10.0 ** generator.uniform(-most, most), queries * 10.0 ** generator.uniform(-40, 40)
    elif kind == "nearly infeasible":
        keys[..., :1] *= 10.0 ** generator.uniform(-9, -1)
    return keys, queries


def _selection(
    generator: np.random.Generator, keys: np.ndarray, queries: np.ndarray, allowed: np.ndarray, prompt: bool
) -> np.ndarray:
    """Mostly what some weights keep, else at random; sometimes sets of tokens."""
    if generator.random() < 0.6:
        weights = generator.standard_normal((keys.shape[-1], queries.shape[-1]))
        images = np.ones_like(queries) @ weights.T if prompt else queries @ weights.T
        values = images @ np.swapaxes(keys, -1, -2)
    else:
        values = generator.standard_normal((*keys.shape[:-3], *allowed.shape))
    chosen = np.where(allowed, values, -np.inf).argmax(axis=-1)
    sets = np.zeros((*keys.shape[:-3], *allowed.shape), bool)
    np.put_along_axis(sets, chosen[..., None], True, axis=-1)
    if generator.random() < 0.15:
        sets |= allowed & (generator.random(allowed.shape) < 0.2)
    return sets
