"""Norms from outside through the generic solver: optima against CVXPY, hard families, and wrong norms."""

from dataclasses import dataclass
from functools import partial

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import attsvm
from attsvm.norms import Norm
from attsvm.svm.methods.generic.problems import slope_of_prox
from oracles.att_svm import by_cvxpy, explicit_rows, nearly_infeasible
from oracles.outside_norms import LargestRow, SumOfRows, longest_row, row_lengths, shrunk, unit_rows


@dataclass(frozen=True)
class NuclearAndFrobenius(Norm):
    """‖W‖_* + ‖W‖_F, by its prox: singular values are shrunk, and then the matrix."""

    name = "nuclear+frobenius"
    left_invariant = right_invariant = True

    def value(self, x, axes=2):
        return np.linalg.norm(x, "nuc") + np.linalg.norm(x)

    @property
    def dual(self):
        return Shrinkage()

    def prox(self, x, step):
        U, sigma, Vt = np.linalg.svd(x, full_matrices=False)
        sigma = shrunk(sigma, step)
        length = np.linalg.norm(sigma)
        return (U * (sigma * max(1 - step / max(length, 1e-300), 0.0))) @ Vt


@dataclass(frozen=True)
class Shrinkage(Norm):
    """The dual of nuclear + Frobenius: the t for which the singular values above t have ‖(σ − t)₊‖ = t."""

    name = "shrinkage"
    left_invariant = right_invariant = True

    def value(self, x, axes=2):
        sigma = np.linalg.svd(x, compute_uv=False)
        low, high = 0.0, sigma[0]
        while high > np.nextafter(low, np.inf):
            t = 0.5 * (low + high)
            if t in (low, high):
                break
            low, high = (t, high) if np.linalg.norm(shrunk(sigma, t)) > t else (low, t)
        return high


@dataclass(frozen=True)
class Schatten(Norm):
    """ℓp of the singular values, by its steepest direction alone."""

    p: float
    left_invariant = right_invariant = True
    name = "schatten"

    def value(self, x, axes=2):
        return np.linalg.norm(np.linalg.svd(x, compute_uv=False), self.p)

    @property
    def dual(self):
        return Schatten(self.p / (self.p - 1))

    def steepest(self, g):
        U, sigma, Vt = np.linalg.svd(g, full_matrices=False)
        q = self.p / (self.p - 1)
        return (U * (sigma / max(np.linalg.norm(sigma, q), 1e-300)) ** (q - 1)) @ Vt


@dataclass(frozen=True)
class FourthPowers(Norm):
    """Entrywise ℓ4, as one would write it first."""

    power: float = 4.0
    name = "fourth-powers"

    def value(self, x, axes=2):
        return (np.abs(x) ** self.power).sum() ** (1 / self.power)

    @property
    def dual(self):
        return FourthPowers(self.power / (self.power - 1))

    def steepest(self, g):
        q = self.power / (self.power - 1)
        return np.sign(g) * (np.abs(g) / max((np.abs(g) ** q).sum() ** (1 / q), 1e-300)) ** (q - 1)


@dataclass(frozen=True)
class SteepestRow(LargestRow):
    """ℓ∞,2 by its steepest direction alone."""

    name = "steepest-row"
    prox = Norm.prox

    def steepest(self, g):
        return unit_rows(g)


@dataclass(frozen=True)
class OneRow(SumOfRows):
    """ℓ2,1 over rows by its steepest direction alone: the longest row."""

    name = "one-row"
    prox = Norm.prox

    def steepest(self, g):
        return longest_row(g)


@dataclass(frozen=True)
class WeightedEntries(Norm):
    """Entrywise ℓ1 with the weights 1, 2, 3, … of the rows, or its dual."""

    is_dual: bool = False
    name = "weighted-entries"

    def value(self, x, axes=2):
        weights = np.arange(1.0, len(x) + 1)[:, None]
        sizes = np.abs(x.reshape(len(x), -1))
        return (sizes / weights).max() if self.is_dual else (sizes * weights).sum()

    @property
    def dual(self):
        return WeightedEntries(not self.is_dual)

    def prox(self, x, step):
        assert not self.is_dual
        return np.sign(x) * shrunk(np.abs(x), step * np.arange(1.0, len(x) + 1)[:, None])


EXPRESSIONS = {
    SumOfRows(): lambda W: cp.sum(cp.norm(W, 2, axis=1)),
    LargestRow(): lambda W: cp.max(cp.norm(W, 2, axis=1)),
    NuclearAndFrobenius(): lambda W: cp.normNuc(W) + cp.norm(W, "fro"),
}
WITH_PROX = pytest.mark.parametrize("norm", EXPRESSIONS, ids=str)


def least_value(norm, problem, selected, relaxed=None):
    rows, right, equality, _ = explicit_rows(
        problem.tokens, problem.queries, selected, allowed=problem.mask[:, None], relaxed=relaxed
    )
    precise = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}
    return by_cvxpy(rows, right, equality, EXPRESSIONS[norm], (problem.key_dim, problem.query_dim), **precise)[1]


def drawn(seed, n=4, T=5, d=6):
    problem = attsvm.datasets.random_problem(n, T, d, seed=seed)
    mask = np.random.default_rng(seed).random((n, T)) < 0.8
    selected = attsvm.optimal_tokens(problem)
    mask[np.arange(n), selected] = True
    return attsvm.Problem(problem.tokens, queries=problem.queries, mask=mask), selected


def spread_spectrum():
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    sizes = np.logspace(0, -3, 10)
    return attsvm.Problem(problem.tokens * sizes, queries=problem.queries * sizes), attsvm.optimal_tokens(problem)


def common_offset():
    problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
    offset = 30 * np.random.default_rng(0).standard_normal(10)
    return attsvm.Problem(problem.tokens + offset, queries=problem.queries + offset), attsvm.optimal_tokens(problem)


@WITH_PROX
@pytest.mark.parametrize("method", [None, "douglas-rachford", "semismooth-newton"])
def test_the_optimum_is_that_of_cvxpy(norm, method):
    problem, selected = drawn(0)
    solution = attsvm.solve_svm(problem, selected, norm=norm, method=method)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(least_value(norm, problem, selected), rel=1e-7)  # Clarabel's own precision
    assert solution.value == pytest.approx(norm.value(solution.direction), rel=1e-12)


@WITH_PROX
def test_kept_sets_and_relaxed_queries_have_the_optimum_of_cvxpy(norm):
    problem, selected = drawn(1)
    sets = np.arange(5) == selected[:, None]
    sets[0, np.flatnonzero(problem.mask[0] & ~sets[0])[0]] = True
    relaxed = np.arange(4) == 1
    solution = attsvm.solve_svm(problem, sets, norm=norm, relaxed=relaxed)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(least_value(norm, problem, sets, relaxed), rel=1e-7)


@pytest.mark.parametrize("exponent", [-140, 140])
def test_powers_in_a_norm_may_leave_the_floats(exponent):
    """The weights are about 2^∓280, whose fourth powers are no floats."""
    problem, selected = drawn(2)
    scale = 2.0**exponent
    scaled = attsvm.Problem(problem.tokens * scale, queries=problem.queries * scale, mask=problem.mask)
    usual, unusual = (attsvm.solve_svm(each, selected, norm=FourthPowers()) for each in (problem, scaled))
    assert unusual.status == usual.status == "optimal"
    assert unusual.value * scale**2 == pytest.approx(usual.value, rel=1e-8)


@pytest.mark.parametrize("norm", [*EXPRESSIONS], ids=str)
@pytest.mark.parametrize("family", [partial(nearly_infeasible, 1e-3, 0), spread_spectrum, common_offset])
def test_hard_families_are_solved(norm, family):
    problem, selected = family()
    solution = attsvm.solve_svm(problem, selected, norm=norm)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-8


def test_newton_on_the_optimality_conditions_solves_what_proximal_points_do_not():
    """Multipliers of 4e4, whose rounding errors keep proximal points at a gap of 3e-7."""
    problem, selected = nearly_infeasible(1e-3, 9)
    solution = attsvm.solve_svm(problem, selected, norm=LargestRow())
    assert (solution.status, solution.stats["method"]) == ("optimal", "semismooth-newton")


def test_a_large_problem_is_solved_on_a_growing_set_of_rows():
    problem = attsvm.datasets.random_problem(16, 101, 20, seed=0)
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=LargestRow())
    assert solution.status == "optimal"
    assert solution.stats["method"] == "douglas-rachford"


@pytest.mark.parametrize(("n", "T", "d", "seed"), [(22, 21, 12, 0), (30, 20, 32, 7)])
def test_badly_scaled_coordinates_do_not_stop_a_large_problem(n, T, d, seed):
    """The splitting alone ends at gaps of 6e-4 and more, Newton steps without a limit at 2e-3. The oracle is HiGHS."""
    problem = attsvm.datasets.random_problem(n, T, d, seed=seed)
    selected = attsvm.optimal_tokens(problem)
    norm = WeightedEntries()
    solution = attsvm.solve_svm(problem, selected, norm=norm)
    rows, right, _, _ = explicit_rows(problem.tokens, problem.queries, selected)
    weights = np.repeat(np.arange(1.0, d + 1), d)
    exact = linprog(np.tile(weights, 2), A_ub=np.hstack([-rows, rows]), b_ub=-right, method="highs-ds").fun
    assert solution.status == "optimal"
    assert exact * (1 - 1e-9) <= solution.value <= exact * (1 + 2e-8)


@pytest.mark.parametrize("norm", [Schatten(1.1), Schatten(1.5), Schatten(3.0)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3])
def test_a_strictly_convex_norm_needs_only_its_steepest_direction(norm, smallest):
    """Also with coordinates of sizes from 1 to 1e-3. The oracle is the solver that uses the prox of Schatten-p."""
    problem, selected = drawn(2)
    sizes = np.geomspace(1, smallest, problem.dim)
    problem = attsvm.Problem(problem.tokens * sizes, queries=problem.queries * sizes)
    solution = attsvm.solve_svm(problem, selected, norm=norm, tol=1e-10)
    assert solution.status == "optimal"
    assert solution.stats["method"] == "quasi-newton"
    exact = attsvm.solve_svm(problem, selected, norm=f"schatten{norm.p}")
    assert solution.value == pytest.approx(exact.value, rel=2e-8)


def test_many_active_rows_of_a_strictly_convex_norm_are_solved_to_rounding_by_its_steepest_direction():
    problem, selected = drawn(0, n=30, T=12, d=24)
    solution = attsvm.solve_svm(problem, selected, norm=Schatten(1.5), tol=1e-10)
    assert solution.status == "optimal"
    assert solution.stats["method"] == "quasi-newton"
    assert solution.support.sum() > 100
    exact = attsvm.solve_svm(problem, selected, norm="schatten1.5")
    assert solution.value == pytest.approx(exact.value, rel=2e-8)


@pytest.mark.parametrize(("steepest", "norm"), [(SteepestRow(), LargestRow()), (OneRow(), SumOfRows())])
def test_any_norm_is_solved_by_its_steepest_directions(steepest, norm):
    problem, selected = drawn(0, n=8, T=10, d=12)
    solution = attsvm.solve_svm(problem, selected, norm=steepest)
    assert solution.status == "optimal"
    assert solution.value == pytest.approx(least_value(norm, problem, selected), rel=1e-7)


def test_a_batch_has_the_solutions_of_its_problems():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=0, batch=(3,))
    selected = attsvm.optimal_tokens(problem)
    together = attsvm.solve_svm(problem, selected, norm=SumOfRows())
    assert (together.status == "optimal").all()
    for k in range(3):
        alone = attsvm.solve_svm(
            attsvm.Problem(problem.tokens[k], queries=problem.queries[k]), selected[k], norm=SumOfRows()
        )
        np.testing.assert_allclose(together.value[k], alone.value, rtol=1e-8)


def test_an_infeasible_selection_is_proved_at_any_scale_of_the_norm():
    @dataclass(frozen=True)
    class Small(SumOfRows):
        factor: float

        def value(self, x, axes=2):
            return self.factor * row_lengths(x).sum()

        @property
        def dual(self):
            return Large(1 / self.factor)

        def prox(self, x, step):
            return super().prox(x, self.factor * step)

    @dataclass(frozen=True)
    class Large(LargestRow):
        factor: float

        def value(self, x, axes=2):
            return self.factor * row_lengths(x).max()

        prox = Norm.prox

    tokens = np.array([[[1.0, 0.0], [0.0, 0.3]], [[0.0, 0.3], [1.0, 0.0]]])
    problem = attsvm.Problem(tokens, queries=np.ones((2, 2)))
    for norm in (SumOfRows(), Small(1e-6), Small(1e6)):
        solution = attsvm.solve_svm(problem, [0, 0], norm=norm)
        assert solution.status == "infeasible"


@pytest.fixture
def unchecked(monkeypatch):
    """Norms from outside are not tested before they are used."""
    monkeypatch.setattr(attsvm.norms.registry, "checked", lambda norm: norm)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("factor", [0.0, 0.5, np.nan])
def test_a_wrong_prox_never_gives_a_false_optimum(factor):
    class Wrong(SumOfRows):
        def prox(self, x, step):
            return super().prox(x, step) * np.linspace(1, factor, x.shape[-1])

    problem, selected = drawn(3)
    solution = attsvm.solve_svm(problem, selected, norm=Wrong())
    exact = attsvm.solve_svm(problem, selected, norm=SumOfRows())
    assert solution.status == "inaccurate"
    assert 1e-6 < solution.gap < 1
    assert solution.value * (1 - solution.gap) <= exact.value <= solution.value


@pytest.mark.usefixtures("unchecked")
def test_a_dual_that_is_too_small_is_noticed():
    """The bounds then exclude each other, which no norm can do."""

    class Wrong(SumOfRows):
        @property
        def dual(self):
            return TooSmall()

    class TooSmall(LargestRow):
        def value(self, x, axes=2):
            return 0.9 * row_lengths(x).max()

    problem, selected = drawn(3)
    assert attsvm.solve_svm(problem, selected, norm=Wrong()).status == "inaccurate"


def test_it_starts_from_a_solution():
    problem, selected = drawn(4)
    cold = attsvm.solve_svm(problem, selected, norm=SumOfRows())
    warm = attsvm.solve_svm(problem, selected, norm=SumOfRows(), warm_start=cold)
    assert (cold.stats["steps"] > 3, warm.stats["steps"], warm.status) == (True, 0, "optimal")


def test_no_active_row_and_no_argument_are_no_breakdown():
    """All margins of an iterate may be too large, and the argument of a prox may be 0."""
    tokens = [
        [[-5.768e-03, -6.13e-08], [3.095e-03, 4.227e-08], [3.073e-03, -1.583e-08], [-4.314e-03, -4.065e-08]],
        [[-8.416e-03, -8.029e-08], [4.44e-04, 5.166e-09], [-1.235e-03, -7.461e-08], [-1.258e-02, -5.146e-08]],
    ]
    problem = attsvm.Problem(tokens, queries=[[1.425e-06, 2.033e03], [4.362e-05, 2.362e03]])
    solution = attsvm.solve_svm(problem, [2, 3], norm="l2,1-columns")
    least = attsvm.solve_svm(problem, [2, 3]).value  # ‖W‖_F ≤ N(W)
    assert solution.value >= least * (1 - 1e-6)
    slope, kink = slope_of_prox(attsvm.norms.parse_norm("l2,1"), np.zeros((2, 3)), 0.5)
    assert (slope == 0).all()
    assert kink == 0
