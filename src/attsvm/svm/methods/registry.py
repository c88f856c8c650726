"""What a solver is given and returns, and the registry: each solver is registered for classes of norms.

A solver returns a candidate, which is certified afterwards.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from attsvm._utils.shapes import Bool, Int
from attsvm.errors import ProblemError
from attsvm.norms import MissingPiece, Norm
from attsvm.svm.certificate import FROBENIUS, unattainable
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.loop import Report


@dataclass(frozen=True)
class SolverSettings:
    """How precise a solver has to be, and where it starts."""

    tol: float = 1e-8  # relative gap at which an iterative method may stop
    max_steps: int | None = None  # None leaves it to the method
    warm_start: np.ndarray | None = None  # shape (*batch, d_k, d_q), initial weights, for the methods that can use them
    report: Report | None = None  # called as ``report(step, gap)`` by iterative methods; a true return value stops them
    # shape (*batch, n, Q, T), multipliers of the original rows that belong to the initial weights, if they are known
    warm_multipliers: np.ndarray | None = None

    def of_problems(self, index: int | Int[np.ndarray, " some"]) -> "SolverSettings":
        """The settings for one problem of a batch, or for some with one batch axis."""
        start, multipliers = self.warm_start, self.warm_multipliers
        if start is not None:
            start = start.reshape(-1, *start.shape[-2:])[index]
        if multipliers is not None:
            multipliers = multipliers.reshape(-1, *multipliers.shape[-3:])[index]
        return replace(self, warm_start=start, warm_multipliers=multipliers)


class Candidate(NamedTuple):
    """Weights and multipliers that may be optimal, or multipliers that may prove infeasibility, not yet certified."""

    weights: Weights  # at any scale: only their direction matters
    multipliers: TokenValues  # of the original rows, at any positive scale
    ray: Bool[np.ndarray, "*batch"]  # True where the multipliers are Farkas multipliers
    steps: Int[np.ndarray, "*batch"]
    method: str
    why: str  # why the method was chosen, in a few words
    # the norm with whose dual norm the multipliers are certified, if the solver knows how to bound that
    norm: Norm | None = None

    @classmethod
    def nothing(cls, constraints: Constraints, why: str) -> "Candidate":
        """Zeros, from a solver that found nothing."""
        batch = constraints.batch_shape
        weights = np.zeros((*batch, *constraints.weights_shape))
        multipliers = np.zeros(constraints.inequality.shape)
        return cls(weights, multipliers, np.zeros(batch, bool), np.zeros(batch, int), "none", why)

    @classmethod
    def joined(cls, each: "list[Candidate]") -> "Candidate":
        """Candidates of single problems as those of a batch."""
        weights, multipliers, ray, steps = (np.array(parts) for parts in list(zip(*each, strict=True))[:4])
        return cls(weights, multipliers, ray, steps, each[0].method, each[0].why)

    def finite(self) -> "Candidate":
        """Put zeros where a problem has a number that is not finite."""
        # a sum of squares is cheaper than a look at each number; where it overflows, the numbers are looked at
        if all(math.isfinite(np.vdot(part, part)) for part in (self.weights, self.multipliers)):
            return self
        lost_weights = ~np.isfinite(self.weights).all(axis=(-2, -1), keepdims=True)
        lost_multipliers = ~np.isfinite(self.multipliers).all(axis=(-3, -2, -1), keepdims=True)
        return self._replace(
            weights=np.where(lost_weights, 0.0, self.weights),
            multipliers=np.where(lost_multipliers, 0.0, self.multipliers),
            ray=self.ray & ~lost_multipliers[..., 0, 0, 0],
        )

    def with_axes_of(self, constraints: Constraints) -> "Candidate":
        """Restore the batch axes of the constraints, which were joined to one, or left out for one problem."""
        batch = constraints.batch_shape
        return self._replace(
            weights=self.weights.reshape(*batch, *constraints.weights_shape),
            multipliers=self.multipliers.reshape(constraints.inequality.shape),
            ray=self.ray.reshape(batch),
            steps=self.steps.reshape(batch),
        )


CACHED = 400_000
"""Numbers in the largest array of problems that are solved together: with more, the processor's cache is too small."""


def undecided(constraints: Constraints) -> Bool[np.ndarray, "*batch"]:
    """Problems that are not decided at first sight: 0 is not the solution, and no row of zeros makes it infeasible."""
    impossible = constraints.flat(unattainable(constraints))
    return np.asarray(constraints.asks_margin & ~np.logical_or.reduce(impossible, axis=-1))


Solve = Callable[[Constraints, Norm, SolverSettings, str | None], Candidate]
"""Finds a candidate for the least norm under constraints, by the method of a name; None leaves the choice to it."""


class Solver(NamedTuple):
    """A registered solver, and the names of its methods for a norm."""

    solve: Solve
    methods: Callable[[Norm], Sequence[str]]
    needs: Sequence[str]  # members of which a norm has to provide one


S = TypeVar("S", bound=Solve)

LATER = {"attsvm.norms.factors": "attsvm.svm.methods.factors"}
"""Packages of solvers that are imported when a norm of these packages is solved in."""

_solvers: dict[type[Norm], Solver] = {}


def solver(
    *norms: type[Norm], methods: Sequence[str] | Callable[[Norm], Sequence[str]], needs: Sequence[str] = ()
) -> Callable[[S], S]:
    """Register a function as the solver for classes of norms, and for their subclasses.

    ``methods``: names of the methods that a user can force; or a function that returns them for a norm.
    ``needs``: members of which a norm has to provide one; a norm without any is refused by name.

    Returns a decorator for a function of (constraints, norm, settings, method) that returns a :class:`Candidate`. The
    candidate is certified by the norm's ``values`` and ``dual`` alone, so a solver need not be exact.

    Raises ProblemError if one of the classes has a solver already.
    """

    def register(solve: S) -> S:
        of_norm = methods if callable(methods) else lambda norm: methods
        for kind in norms:
            if kind in _solvers:
                raise ProblemError(f"norm: a solver is already registered for {kind.__name__}")
            _solvers[kind] = Solver(solve, of_norm, needs)
        return solve

    return register


def solver_of(norm: Norm) -> Solver:
    """The solver that is registered for the class of a norm, or for the nearest of its base classes.

    Raises ProblemError if there is none.
    """
    _discover()
    for norms, solvers in LATER.items():
        if type(norm).__module__.startswith(norms):
            importlib.import_module(f"{solvers}.choice")
    # the most special solver: a subclass may have its own
    for kind in type(norm).__mro__:
        found = _solvers.get(kind)
        if found is not None:
            return found
    raise ProblemError(f"norm: no solver is registered for norm {norm.name!r}")


def find_candidate(
    constraints: Constraints, norm: Norm, settings: SolverSettings, method: str | None = None
) -> Candidate:
    """Return the candidate that the solver of a norm finds.

    If a factorisation fails, return the candidate of the Frobenius norm, or weights of 0.

    Raises ProblemError if the norm has no solver or does not provide what it needs, or has no method of this name.
    """
    solve, methods, needs = solver_of(norm)
    if needs and not any(provides(norm, piece) for piece in needs):
        *most, last = (f"`{piece}`" for piece in needs)
        raise MissingPiece(f"norm: {norm.name} does not provide {', '.join(most)} or {last}, so it cannot be solved")
    if method is not None:
        check_method(method, methods(norm), norm)
    try:
        return solve(constraints, norm, settings, method).finite()
    except np.linalg.LinAlgError as error:
        why = f"it failed numerically ({error})"
    if constraints.batch_shape:
        each = [
            find_candidate(constraints[index], norm, settings.of_problems(k), method)
            for k, index in enumerate(np.ndindex(constraints.batch_shape))
        ]
        return Candidate.joined(each).with_axes_of(constraints)
    if norm != FROBENIUS:
        return find_candidate(constraints, FROBENIUS, SolverSettings())._replace(why=f"{why}: the Frobenius answer")
    return Candidate.nothing(constraints, why)


@lru_cache(maxsize=256)
def provides(norm: Norm, piece: str) -> bool:
    """Tell whether a norm provides one of its maps: on a sample, as a norm made of others may lack what they lack."""
    sample = np.ones(norm.sample_shape)
    try:
        _ = norm.steepest(sample) if piece == "steepest" else norm.prox(sample, 1.0)
    except MissingPiece:
        return False
    return True


def check_method(method: str, methods: Sequence[str], norm: Norm) -> None:
    """Raise ProblemError if a method is none of those of a norm."""
    if method not in methods:
        expected = " or ".join(methods) or "no method"
        raise ProblemError(f"method: expected {expected} for norm {norm.name!r}, got {method!r}")


@cache
def _discover() -> None:
    """Import the modules that register the built-in solvers."""
    package = importlib.import_module("attsvm.svm.methods")
    for module in pkgutil.walk_packages(package.__path__, "attsvm.svm.methods."):
        if not module.name.startswith(tuple(LATER.values())):
            importlib.import_module(module.name)
