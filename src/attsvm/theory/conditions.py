"""The result of every check of a theorem: hypotheses, each with whether it holds and the number that decides.

The first of them is that weights exist that keep the selection: :func:`feasibility`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm.norms import Norm
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Batched, Status, per_trial, plain, shared
from attsvm.selection import optimal_tokens
from attsvm.svm import Solution, solve_svm

LARGEST_VIOLATION = 1e-9
"""Of the weights of an Att-SVM that prove that it is feasible, as of its optimal ones."""


@dataclass(frozen=True)
class Hypothesis:
    """A statement that a theorem or a measurement assumes, and whether it holds.

    Attributes
    ----------
    name : str
        A key, such as "full_batch"; empty in files of version 0.2.
    statement : str
    holds : bool, bool ndarray of shape (*batch_shape,), or None
        None if it was not decided: not checked, or proved neither to hold nor not to hold. In an array of several
        trials this is NaN, and the others are 1 and 0.
    number : float, ndarray of shape (*batch_shape,), or None
        What was found; None if there is no number.
    unit : str
        Of the number: "steps", "sequences", "logits"; empty for a pure number.

    See Also
    --------
    attsvm.Prediction, attsvm.theory.Conditions

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000, penalty=0.1)
    >>> for one in attsvm.predict_direction(problem, run).hypotheses[:2]:
    ...     print(one)
    the run made at least 2 steps: holds (2,000 steps)
    the weights do not decay: holds (0)
    """

    name: str
    statement: str
    holds: bool | np.ndarray | None
    number: float | np.ndarray | None = None
    unit: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds, in words."""
        if self.holds is None:
            return "not decided"
        if np.ndim(self.holds):
            undecided = np.count_nonzero(np.isnan(np.asarray(self.holds, float)))
            text = f"holds for {int(np.nansum(self.holds))} of {np.size(self.holds)}"
            return f"{text}, not decided for {undecided}" if undecided else text
        return "holds" if self.holds else "does not hold"

    def __str__(self) -> str:
        if self.number is None or np.ndim(self.number):
            return f"{self.statement}: {self.verdict}"
        # more digits of a number that looks like the bound in the statement
        precise = (f"{self.number:z.{digits}g}" for digits in range(3, 18))
        rounded = next((text for text in precise if float(text) == self.number or text not in self.statement), "nan")
        number = f"{self.number or 0:,}" if self.unit and float(self.number).is_integer() else rounded
        return f"{self.statement}: {self.verdict} ({number.removesuffix('.0')}{' ' + self.unit if self.unit else ''})"


def worst_case(name: str, statement: str, holds: Any, number: Any, unit: str = "", *, least: bool = True) -> Hypothesis:
    """A hypothesis for all trials together, with the least (or largest) number among those that decide."""
    holds, number = np.broadcast_arrays(np.asarray(holds, np.float64), np.asarray(number, np.float64))
    # if it fails in some trials, these decide, and their worst number is shown
    deciding = number if holds.all() else number[holds == 0]  # NaN is true
    found = float(np.min(deciding) if least else np.max(deciding)) if deciding.size else None
    shown = found if found is not None and np.isfinite(found) else None
    every = np.min(holds, initial=1.0) if holds.all() else 0.0
    return Hypothesis(name, statement, three_valued(every), shown, unit)


def at_most(name: str, statement: str, number: Any, most: float, unit: str = "") -> Hypothesis:
    """A hypothesis that a number is at most a bound in all trials, with the largest number."""
    return worst_case(name, statement, np.asarray(number) <= most, number, unit, least=False)


def three_valued(holds: Any) -> bool | np.ndarray | None:
    """A bool, or None for NaN; of several trials bools, or numbers if some are NaN."""
    holds = np.asarray(holds, np.float64)
    # arrays of bools have no third value, so that trials with an unknown one stay floats
    unknown = np.isnan(holds)
    if holds.ndim == 0:
        return None if unknown else bool(holds)
    return np.asarray(holds if unknown.any() else holds.astype(bool))


def written_hypotheses(hypotheses: Iterable[Hypothesis]) -> list[dict[str, Any]]:
    """Hypotheses of all trials together, as JSON-able data."""
    return [
        {"name": one.name, "statement": one.statement, "holds": one.holds, "number": one.number, "unit": one.unit}
        for one in hypotheses
    ]


def read_hypotheses(written: list[dict[str, Any]]) -> tuple[Hypothesis, ...]:
    """Read what :func:`written_hypotheses` wrote, or version 0.2, which gave hypotheses no names."""
    return tuple(Hypothesis(**{"name": "", **one}) for one in written)


@dataclass(frozen=True, eq=False, repr=False)
class Conditions(Batched):
    """Whether the hypotheses of a theorem hold, with the decisive numbers and the certificate.

    Every number is an attribute of its name, too: ``conditions.score_gap`` is ``conditions.numbers["score_gap"]``.
    So is a hypothesis without a number: ``conditions.feasible`` says whether it holds. The function that checks a
    theorem lists the names.

    Attributes
    ----------
    holds : bool or None, or bool ndarray, shape (*batch_shape,)
        Whether all of :attr:`hypotheses` hold. None, or NaN in an array of several trials, if some are not decided and
        the others hold.
    met : dict of str to bool or None, or bool ndarray of shape (*batch_shape,)
        Whether each hypothesis holds, by its name.
    numbers : dict of str to number or ndarray, shape (*batch_shape, ...)
        The numbers of the hypotheses, by their names, and further ones that the theorem is about.
    solution : Solution
        The Att-SVM of the selection, or the certificate that there is none.
    statements : dict of str to [str, str]
        The statement of each hypothesis and the unit of its number, by its name.
    head : Solution, optional
        The max-margin head, for conditions of joint training.

    See Also
    --------
    attsvm.theory.Hypothesis : One hypothesis.
    attsvm.feasibility, attsvm.theory.global_convergence_conditions, attsvm.theory.local_convergence_conditions

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> found = attsvm.theory.local_convergence_conditions(problem, attsvm.optimal_tokens(problem))
    >>> found
    Conditions(all hypotheses hold)
    >>> round(found.support_gap, 3)
    0.316
    """

    kind: ClassVar[str] = "conditions"

    holds: bool | np.ndarray | None = per_trial()
    met: dict[str, Any] = per_trial()
    numbers: dict[str, Any] = per_trial()
    solution: Solution = per_trial()
    statements: dict[str, Any] = shared()
    head: Solution | None = per_trial(None)

    def __post_init__(self) -> None:
        """Say None where one trial of several, or of a file, has NaN."""
        object.__setattr__(self, "holds", three_valued(self.holds))
        object.__setattr__(self, "met", {name: three_valued(x) for name, x in self.met.items()})

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses, in the order in which they are to be checked."""
        return tuple(
            Hypothesis(name, statement, self.met[name], self.numbers.get(name), unit)
            for name, (statement, unit) in self.statements.items()
        )

    @property
    def status(self) -> Status | np.ndarray:
        """The status of the Att-SVM."""
        status: Status | np.ndarray = self.solution.status
        return status

    def __getattr__(self, name: str) -> Any:
        # while an object is copied or read it has no fields yet
        numbers, met = self.__dict__.get("numbers", {}), self.__dict__.get("met", {})
        if name in numbers:
            return numbers[name]
        if name in met:
            return met[name]
        names = ", ".join(dict.fromkeys((*met, *numbers)))
        raise AttributeError(f"conditions: expected one of {names}, got {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.met, *self.numbers})

    def _per_trial(self) -> Iterator[tuple[str, np.ndarray]]:
        # under the names of attributes, in tables; a number says more than whether its hypothesis holds
        yield "holds", np.asarray(np.nan if self.holds is None else self.holds)
        named = {**self.met, **self.numbers}
        for name, x in named.items():
            if not self.batch_shape or np.ndim(x):
                yield name, np.asarray(np.nan if x is None else x)
        yield from ((f"solution_{name}", x) for name, x in self.solution._per_trial())
        yield from () if self.head is None else ((f"head_{name}", x) for name, x in self.head._per_trial())

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from super()._rows()
        yield from ((one.statement, one.verdict) for one in self.hypotheses)

    def _summary(self) -> str:
        return "; ".join(str(one) for one in self.hypotheses if not one.holds) or "all hypotheses hold"

    def _batch_summary(self) -> str:
        return "; ".join(str(one) for one in self.hypotheses)


def conditions(
    hypotheses: Iterable[Hypothesis], numbers: Mapping[str, Any], solution: Solution, head: Solution | None = None
) -> Conditions:
    """The conditions of a theorem, with further numbers than those of its hypotheses.

    Hypotheses are broadcast to the batch axes of the solution.
    """
    hypotheses, batch = tuple(hypotheses), solution.batch_shape
    met = {one.name: np.broadcast_to(np.asarray(one.holds, np.float64), batch) for one in hypotheses}
    every = np.stack(list(met.values()))
    decide = {one.name: np.broadcast_to(one.number, batch) for one in hypotheses if one.number is not None}
    return Conditions(
        holds=three_valued(np.where(every.all(axis=0), every.min(axis=0), 0.0)),  # NaN is true
        met={name: three_valued(x) for name, x in met.items()},
        numbers={name: plain(x) for name, x in (decide | dict(numbers)).items()},
        solution=solution,
        statements={one.name: [one.statement, one.unit] for one in hypotheses},
        head=head,
    )


def feasibility(problem: Problem, selected: Any = None, norm: str | float | Norm = "frobenius") -> Conditions:
    """Whether the Att-SVM of a selection has a solution, with a certificate.

    Parameters
    ----------
    problem : Problem
    selected : array, Run, Solution or Prediction, optional
        As for :func:`attsvm.solve_svm`; by default the optimal tokens, which need labels and a head.
    norm : str, float or Norm
        The norm of the Att-SVM. The answer does not depend on it.

    Returns
    -------
    Conditions
        With one hypothesis, ``feasible``, whose certificate is ``solution``: the optimum of the Att-SVM, or Farkas
        multipliers that prove that there are no weights of reasonable size. It is None, or NaN in an array of several
        problems, where neither is proved. The number ``almost_sure`` says whether the sizes alone are sufficient: for
        generic tokens and queries every selection is feasible if d_k ≥ T − 1 and d_q is at least the number of
        queries. This is not necessary, and never holds for a prompt.

    Raises
    ------
    ProblemError
        If the selection does not fit, or there is none and the problem has no labels or no head.

    See Also
    --------
    attsvm.solve_svm
    attsvm.theory.Conditions : The result.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, Theorem 1.

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.feasibility(attsvm.datasets.random_problem(3, 4, 5, seed=0))
    >>> found.feasible, found.almost_sure
    (True, True)
    """
    check_is_problem(problem)
    queries = int(problem.canonical.active.sum(axis=(-2, -1)).max())
    most_tokens = int(problem.copies.distinct.sum(axis=-1).max())
    # Theorem 1 has d ≥ max(T − 1, n); here keys and queries may have different dimensions
    almost_sure = problem.has_queries and problem.key_dim >= most_tokens - 1 and problem.query_dim >= queries
    solution = solve_svm(problem, optimal_tokens(problem) if selected is None else selected, norm=norm)
    statement = "the selected tokens can be separated from the others"
    return conditions(
        (Hypothesis("feasible", statement, is_feasible(solution)),), {"almost_sure": almost_sure}, solution
    )


def is_feasible(solution: Solution) -> np.ndarray:
    """Whether an Att-SVM has weights that satisfy its constraints: 1, 0, or NaN where neither is proved.

    Weights with positive margins are a proof, whether they are optimal or not. Shape: the batch axes.
    """
    # the gap is finite where the margins are positive, rounding errors included
    proved = np.isfinite(solution.gap) & (np.asarray(solution.violation) <= LARGEST_VIOLATION)
    return np.where(np.asarray(solution.status) == Status.INFEASIBLE, 0.0, np.where(proved, 1.0, np.nan))
