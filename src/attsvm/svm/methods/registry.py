"""The registry of solvers: each solver is registered for classes of norms."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.svm.certificate import FROBENIUS
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.methods.candidate import Candidate, Settings


class Solve(Protocol):
    """What a solver is: a function that returns a candidate for the least norm under constraints."""

    def __call__(self, constraints: Constraints, norm: Norm, settings: Settings, method: str | None) -> Candidate:
        """The candidate, found by the method of this name; None leaves the choice to the solver."""


class Solver(NamedTuple):
    """A registered solver, and the names of its methods for a norm."""

    solve: Solve
    methods: Callable[[Norm], Sequence[str]]


S = TypeVar("S", bound=Solve)

LATER = {"attsvm.norms.factors": "attsvm.svm.factors"}
"""Modules of solvers that are imported when a norm of these packages is solved in."""

_solvers: dict[type[Norm], Solver] = {}


def solver(*norms: type[Norm], methods: Sequence[str] | Callable[[Norm], Sequence[str]]) -> Callable[[S], S]:
    """Register a function as the solver for classes of norms, and for their subclasses.

    ``methods``: names of the methods that a user can force; or a function that returns them for a norm.

    Returns a decorator for a function of (constraints, norm, settings, method) that returns a :class:`Candidate`. The
    candidate is certified by the norm's ``values`` and ``dual`` alone, so a solver need not be exact.

    Raises ProblemError if one of the classes has a solver already.
    """

    def register(solve: S) -> S:
        of_norm = methods if callable(methods) else lambda norm: methods
        for kind in norms:
            if kind in _solvers:
                raise ProblemError(f"norm: a solver is registered for {kind.__name__} already")
            _solvers[kind] = Solver(solve, of_norm)
        return solve

    return register


def solver_of(norm: Norm) -> Solver:
    """The solver that is registered for the class of a norm, or for the nearest of its base classes.

    Raises ProblemError if there is none.
    """
    _discover()
    for package, module in LATER.items():
        if type(norm).__module__.startswith(package):
            importlib.import_module(module)
    # the most special solver: a subclass may have its own
    for kind in type(norm).__mro__:
        found = _solvers.get(kind)
        if found is not None:
            return found
    raise ProblemError(f"norm: no solver is registered for norm {norm.name!r}")


def find_candidate(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Return the candidate that the solver of a norm finds.

    If a factorisation fails, return the candidate of the Frobenius norm, or weights of 0. It is certified like any
    other.

    Raises ProblemError if no solver is registered for the norm, or it has no method of this name.
    """
    solve, methods = solver_of(norm)
    if method is not None:
        check_method(method, methods(norm), norm)
    try:
        return solve(constraints, norm, settings, method).finite()
    except np.linalg.LinAlgError as error:
        why = f"it failed numerically ({error})"
    if constraints.batch_shape:
        each = [
            find_candidate(constraints[index], norm, settings.of_problem(k, constraints.batch_shape), method)
            for k, index in enumerate(np.ndindex(constraints.batch_shape))
        ]
        return Candidate.joined(each).with_axes_of(constraints)
    if norm != FROBENIUS:
        return find_candidate(constraints, FROBENIUS, Settings())._replace(why=f"{why}: the Frobenius answer")
    return Candidate.nothing(constraints, why)


def check_method(method: str, methods: Sequence[str], norm: Norm) -> None:
    """Check that a method is one of those of a norm.

    Raises ProblemError if it is not.
    """
    if method not in methods:
        expected = " or ".join(methods) or "no method"
        raise ProblemError(f"method: expected {expected} for norm {norm.name!r}, got {method!r}")


@cache
def _discover() -> None:
    """Import the modules that register the built-in solvers."""
    package = importlib.import_module("attsvm.svm.methods")
    for module in pkgutil.walk_packages(package.__path__, "attsvm.svm.methods."):
        importlib.import_module(module.name)
