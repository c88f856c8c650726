"""Solvers are found by the class of a norm; norms that cannot be solved or certified are refused by name."""

from dataclasses import dataclass

import numpy as np
import pytest

import attsvm
from attsvm.norms import Lp, Norm
from attsvm.svm.methods import registry
from attsvm.svm.methods.registry import find_candidate, solver


@dataclass(frozen=True)
class Half(Norm):
    """Half the Frobenius norm."""

    name = "half"

    def value(self, x, axes=2):
        return 0.5 * float(np.linalg.norm(x))

    @property
    def dual(self):
        return Twice()


@dataclass(frozen=True)
class Twice(Half):
    name = "twice"

    def value(self, x, axes=2):
        return 2.0 * float(np.linalg.norm(x))

    @property
    def dual(self):
        return Half()


class NoDual(Norm):
    name = "no-dual"

    def value(self, x, axes=2):
        return float(np.linalg.norm(x))


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(seed=7)


@pytest.fixture
def of_half(monkeypatch):
    monkeypatch.setattr(registry, "_solvers", dict(registry._solvers))

    @solver(Half, methods=("scaled",))
    def solve(constraints, norm, settings, method=None):
        return find_candidate(constraints, Lp(2.0), settings)

    return solve


def test_a_norm_without_a_map_that_a_solver_could_use_is_refused_by_name(problem):
    with pytest.raises(attsvm.ProblemError, match="half does not provide `prox`, `project_dual_ball` or `steepest`"):
        attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=Half())


def test_a_norm_without_a_dual_is_refused_by_name(problem):
    with pytest.raises(attsvm.ProblemError, match=r"no-dual does not provide `dual`"):
        attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=NoDual())


@pytest.mark.usefixtures("of_half")
@pytest.mark.parametrize(("norm", "factor"), [(Half(), 0.5), (Twice(), 2.0)])
def test_a_registered_solver_is_certified_by_the_norm_and_serves_its_subclasses(problem, norm, factor):
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected, norm=norm, method="scaled")
    plain = attsvm.solve_svm(problem, selected)
    assert solution.status == "optimal"
    assert solution.norm == norm
    assert solution.value == pytest.approx(factor * plain.value)
    assert np.linalg.norm(solution.dual) == pytest.approx(factor * np.linalg.norm(plain.dual))
    with pytest.raises(attsvm.ProblemError, match=r"expected scaled for norm '(half|twice)', got 'newton'"):
        attsvm.solve_svm(problem, selected, norm=norm, method="newton")


@pytest.mark.usefixtures("of_half")
def test_a_class_has_one_solver():
    with pytest.raises(attsvm.ProblemError, match="already"):
        solver(Half, methods=())(lambda constraints, norm, settings, method: None)
