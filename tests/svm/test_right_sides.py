"""Margins of any sign and weights measured from a centre: against a conic solver and by certificates in NumPy."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import attsvm
from attsvm.norms import MaxOfHeads, Nuclear, SumOfHeads
from attsvm.selection import selection_sets
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.frobenius.dual_search import DualSearch
from attsvm.svm.right_sides import with_margins
from oracles.att_svm import at, by_cvxpy, explicit_rows
from oracles.norms import norm_and_dual

pytest.importorskip("cvxpy")

NORMS = ("frobenius", "l1", "l1.75", "l5", "linf", "nuclear", "spectral")


class Case(NamedTuple):
    """A problem with its margins and its centre, and its rows written out."""

    problem: attsvm.Problem
    selected: np.ndarray
    required: np.ndarray
    center: np.ndarray
    rows: np.ndarray
    right: np.ndarray
    places: list

    def solve(self, norm, **options):
        return attsvm.solve_svm(
            self.problem, self.selected, norm, required=self.required, center=self.center, **options
        )


def case_of(seed, n, T, d, Q=None, prompt=False, level=0.0, scale=1.0, size=1.0):
    """Margins of both signs around a level. Without queries, or with small d, many are infeasible."""
    generator = np.random.default_rng(seed)
    shape = (n,) if Q is None else (n, Q)
    tokens = scale * generator.standard_normal((n, T, d))
    queries = None if prompt else generator.standard_normal((*shape, d))
    selected = generator.integers(0, T, shape)
    required = generator.standard_normal((*shape, T)) + level
    required[generator.random(required.shape) < 0.2] = np.nan
    center = size * generator.standard_normal(d if prompt else (d, d))
    rows, _, _, places = explicit_rows(tokens, queries, selected)
    right = np.array([required[i, q, t] if Q else required[i, t] for i, q, t in places])
    asked = ~np.isnan(right)
    places = [place for place, is_asked in zip(places, asked, strict=True) if is_asked]
    problem = attsvm.Problem(tokens, queries=queries)
    return Case(problem, selected, required, center, rows[asked], right[asked], places)


def accept(case, solution, name, tol=1e-8):
    """Accept the answer by its own numbers: feasible, and as short as its multipliers allow; or a Farkas proof."""
    norm, dual_norm = norm_and_dual(name, case.center.shape if case.center.ndim == 2 else (len(case.center), 1))
    dual = at(case.places, solution.dual, case.problem.has_query_axis)
    assert (dual >= 0).all()
    assert np.count_nonzero(dual) == np.count_nonzero(solution.dual)
    short = case.right - case.rows @ case.center.ravel()
    pull = dual_norm(case.rows.T @ dual)
    lengths = np.linalg.norm(case.rows, axis=1)
    if solution.status == "infeasible":
        assert case.right @ dual == pytest.approx(1.0)
        assert dual @ lengths > 1e12 * pull * (dual @ np.abs(case.right))
        assert np.isnan(solution.direction).all()
        return
    assert solution.status == "optimal"
    change = (solution.direction - case.center).ravel()
    slack = case.rows @ solution.direction.ravel() - case.right
    # the margins are exact up to the rounding of the products with W, which has the length of the centre and more
    rounding = 1e-14 * lengths * (np.linalg.norm(change) + np.linalg.norm(case.center))
    assert (slack >= -rounding).all()
    assert norm(change) == pytest.approx(solution.value, rel=1e-12, abs=1e-14 * norm(case.center.ravel()))
    assert solution.margin == pytest.approx(slack.min(), abs=rounding.max())
    if solution.value == 0:
        assert (short <= rounding).all()
    else:
        assert pull == pytest.approx(1.0)
        assert (1 - tol) * solution.value <= short @ dual <= solution.value * (1 + 1e-10)


@pytest.mark.filterwarnings("ignore:pnorm with p=1.75", "ignore:Solution may be inaccurate")
@pytest.mark.parametrize("name", NORMS)
def test_random_margins_and_centres_agree_with_a_conic_solver(name):
    seen = {"optimal": 0, "infeasible": 0}

    @settings(max_examples=60)
    @given(
        st.integers(0, 2**32 - 1),
        st.integers(1, 4),
        st.integers(2, 6),
        st.integers(1, 4),
        st.sampled_from([None, 2]),
        st.booleans(),
        st.sampled_from([-1.0, 0.0, 1.0]),
        st.sampled_from([0.0, 1.0]),
    )
    def agrees(seed, n, T, d, Q, prompt, level, size):
        case = case_of(seed, n, T, d, None if prompt else Q, prompt, level, size=size)
        if len(case.rows) == 0:
            return
        solution = case.solve(name)
        accept(case, solution, name)
        seen[solution.status] += 1
        # the change of the weights has the margins that the centre lacks
        short = case.right - case.rows @ case.center.ravel()
        shape = (d, 1) if prompt else (d, d)
        status, value = by_cvxpy(case.rows, short, np.zeros(len(short), bool), name, shape)
        if solution.status == "infeasible":
            assert status.startswith("infeasible")
        else:
            # absolute: Clarabel's tolerance, where the centre already has the margins
            assert solution.value == pytest.approx(value, rel=1e-5, abs=1e-6)

    agrees()
    assert min(seen.values()) >= 5, seen


@pytest.mark.parametrize("name", ["l2,1", "gamma2", "nu", "schatten1.5"])
def test_norms_of_the_generic_interface_agree_with_their_bounds(name):
    norm = attsvm.norms.parse_norm(name)
    for seed in range(4):
        case = case_of(seed, 3, 4, 4)
        solution = case.solve(name)
        assert solution.status == "optimal"
        dual = at(case.places, solution.dual, False)
        change = solution.direction - case.center
        # the dual norm of γ2 and of ν is a program, whose value is known to about 1e-9
        pull = norm.dual.value((case.rows.T @ dual).reshape(4, 4))
        gain = (case.right - case.rows @ case.center.ravel()) @ dual / pull
        assert (case.rows @ solution.direction.ravel() >= case.right - 1e-12).all()
        assert gain == pytest.approx(norm.value(change), rel=2e-8)


@pytest.mark.parametrize("name", [*NORMS, "l2,1"])
def test_a_batch_is_its_members(name):
    """Some members are infeasible, some have the margins already, and some lack rows that others have."""
    members = [case_of(seed, 3, 4, 2, level=level) for seed, level in zip(range(9), [-1, 0, 1] * 3, strict=True)]
    members[4] = members[4]._replace(center=0 * members[4].center, required=-np.abs(members[4].required))
    tokens, queries = (np.stack([getattr(each.problem, part) for each in members]) for part in ("tokens", "queries"))
    problem = attsvm.Problem(tokens, queries=queries)
    selected, required, center = (
        np.stack([getattr(each, part) for each in members]) for part in ("selected", "required", "center")
    )
    together = attsvm.solve_svm(problem, selected, name, required=required, center=center)
    assert {"optimal", "infeasible"} == set(together.status)
    assert together.value[4] == 0
    for k, each in enumerate(members):
        alone = each.solve(name)
        assert alone.status == together.status[k]
        np.testing.assert_allclose(together.value[k], alone.value, rtol=2e-8)
        np.testing.assert_array_equal(together[k].required, each.required)


@pytest.mark.parametrize("name", ["frobenius", "l1", "l5", "nuclear", "l2,1"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaled_tokens_and_margins_scale_the_answer(name, scale):
    plain, scaled = case_of(7, 3, 4, 4), case_of(7, 3, 4, 4, scale=scale)
    shrunk = scaled._replace(center=plain.center / scale)
    assert scale * shrunk.solve(name).value == pytest.approx(plain.solve(name).value, rel=2e-8)
    longer = plain._replace(center=plain.center * scale, required=plain.required * scale)
    assert longer.solve(name).value == pytest.approx(scale * plain.solve(name).value, rel=2e-8)


@pytest.mark.parametrize("name", ["frobenius", "l1.75", "linf", "nuclear", "spectral", "l2,1"])
def test_opposite_margins_leave_no_room_or_contradict(name):
    """Tokens k ± u: one margin is the negative of the other, so b and −b have solutions without room inside."""
    token, step = np.array([1.0, 2.0, -1.0]), np.array([0.5, 1.0, 3.0])
    problem = attsvm.Problem([[token, token + step, token - step]], queries=[[1.0, -2.0]])
    exact = attsvm.solve_svm(problem, [0], name, required=[[0, 1, -1]])
    plain = attsvm.solve_svm(problem, [0], name, required=[[0, 1, np.nan]])
    assert exact.status == plain.status == "optimal"
    assert exact.value == pytest.approx(plain.value, rel=2e-8)
    room = attsvm.solve_svm(problem, [0], name, required=[[0, 1, -3]])
    assert (room.status, room.value) == ("optimal", pytest.approx(plain.value, rel=2e-8))
    assert attsvm.solve_svm(problem, [0], name, required=[[0, 1, -0.9]]).status == "infeasible"
    assert attsvm.solve_svm(problem, [0], name, required=[[0, -1, 1.1]]).status == "infeasible"


@pytest.mark.parametrize("method", ["least-distance", "projected-gradient"])
def test_the_methods_of_the_frobenius_norm_agree(method):
    case = case_of(3, 12, 6, 12)
    accept(case, case.solve("frobenius", method=method), "frobenius", tol=1e-11)
    far = case._replace(required=np.where(case.required < 0, -1e9, case.required), center=0 * case.center)
    near = far._replace(required=np.where(far.required < 0, np.nan, far.required))
    assert far.solve("frobenius", method=method).value == pytest.approx(near.solve("frobenius").value, rel=1e-12)
    contradiction = case_of(0, 6, 6, 2, level=1.0)
    assert contradiction.solve("frobenius", method=method).status == "infeasible"


@pytest.mark.parametrize(("other", "is_proof"), [(-0.9, True), (-1.1, False)])
def test_the_search_for_a_ray_counts_negative_right_sides(other, is_proof):
    """Opposite rows cancel, but their multipliers prove nothing if the margins leave room."""
    problem = attsvm.Problem([[[0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]]])
    constraints = Constraints.of(problem, selection_sets(problem, [0]))
    search = DualSearch(DualProducts(with_margins(constraints, np.array([0.0, 1.0, other]))), 1e-15, 1000)
    assert search.ray(np.ones((1, 1, 3)), 1000)[1] == is_proof


def test_margins_of_one_and_a_centre_of_zero_are_the_ordinary_problem():
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=2)
    selected = attsvm.optimal_tokens(problem)
    for name in ("frobenius", "l3", "nuclear"):
        plain = attsvm.solve_svm(problem, selected, name)
        same = attsvm.solve_svm(problem, selected, name, required=np.ones((4, 5)), center=np.zeros((6, 6)))
        assert same.value == pytest.approx(plain.value, rel=2e-8)
        np.testing.assert_array_equal(same.support, plain.support)
        # the solution has its margins, up to rounding
        assert attsvm.solve_svm(problem, selected, name, center=same).value <= 1e-13 * plain.value
        warm = attsvm.solve_svm(problem, selected, name, center=0.5 * plain.direction, warm_start=plain)
        assert warm.value == pytest.approx(0.5 * plain.value, rel=2e-8)


@pytest.mark.parametrize("norm", [SumOfHeads(Nuclear()), MaxOfHeads(Nuclear())], ids=["sum", "max"])
def test_heads_together_are_their_single_solutions(norm):
    generator = np.random.default_rng(0)
    tokens, queries = generator.standard_normal((3, 4, 8)), generator.standard_normal((3, 8))
    problem = attsvm.Problem(tokens, queries=queries, num_heads=2)
    selected = generator.integers(0, 4, (2, 3))
    center = generator.standard_normal((2, problem.key_dim, problem.query_dim))
    required = generator.standard_normal((2, 3, 4))
    each = attsvm.solve_svm(problem, selected, "nuclear", required=required, center=center)
    together = attsvm.solve_svm(problem, selected, norm, required=required, center=center)
    assert together.status == "optimal"
    assert together.value == pytest.approx(each.value.sum() if norm == SumOfHeads(Nuclear()) else each.value.max())


OPPOSITE = attsvm.Problem([[[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]])
"""Tokens for which margins b_1 and b_2 ask p_1 ≥ b_1 and −p_1 ≥ b_2."""


@pytest.mark.parametrize("norm", ["frobenius", "l1", "l3", "nuclear"])
@pytest.mark.parametrize("size", [0.5, 2e-3, 1e-6, 1e-12])
def test_a_contradiction_that_cancels_exactly_is_proved_however_small(norm, size):
    solution = attsvm.solve_svm(OPPOSITE, [0], norm, required=[[np.nan, 1.0, size - 1.0]])
    first, second = solution.dual[0, 1:]
    assert solution.status == "infeasible"
    assert first == second > 0  # A*(λ) is exactly 0
    assert first * size == pytest.approx(1.0, rel=1e-3)
    possible = attsvm.solve_svm(OPPOSITE, [0], norm, required=[[np.nan, 1.0, -size - 1.0]])
    assert (possible.status, possible.value) == ("optimal", pytest.approx(1.0))


@pytest.mark.parametrize("size", [1e-3, 3e-5, 1e-6, 1e-8])
@pytest.mark.parametrize("size_of_center", [None, 1.0])
def test_a_contradiction_is_proved_or_violated_least(size, size_of_center):
    """The diet of the issue cvxpy#216: the least cost is 129.1667, and less is required."""
    food, sugar, price = np.array([0.8, 0.4, 0.5]), np.array([0, 0.3, 2.0]), np.array([1, 0.25])
    rows = np.r_[np.c_[food, sugar] / price, np.eye(2), -np.ones((1, 2))]
    right = np.r_[50 * np.array([1, 2.1, 1.7]), 0, 0, -(1 - size) * 775 / 6]
    problem = attsvm.Problem(-np.r_[np.zeros((1, 2)), rows][None])
    center = None if size_of_center is None else [size_of_center, 0.0]
    solution = attsvm.solve_svm(problem, [0], required=np.r_[np.nan, right][None], center=center)
    if size >= 1e-3:
        assert solution.status == "infeasible"
        return
    assert solution.status == "inaccurate"
    assert 1e10 * size < solution.bound <= 1e17 * size
    lengths = np.linalg.norm(rows, axis=1)
    goal, left = [0, 0, 1.0], -np.c_[rows / lengths[:, None], np.ones(6)]
    least = linprog(goal, A_ub=left, b_ub=-right / lengths, bounds=[(None, None)] * 2 + [(0, None)]).fun
    assert ((right - rows @ solution.direction) / lengths).max() <= 1.01 * least + 1e-7
    assert attsvm.Solution.certificate.fget(solution) is None


@pytest.mark.parametrize("norm", ["frobenius", "l1", "l3", "linf", "nuclear", "l2,1"])
def test_contradictions_below_the_tolerance_of_highs_are_measured(norm):
    """a w ≥ (1 + s) a and −c w ≥ (s − 1) c contradict each other by s on unit rows; −w/2 ≥ −9 holds."""
    generator = np.random.default_rng(3)
    for s in 10.0 ** generator.uniform(-10, -7, 6):
        a, c = 10.0 ** generator.uniform(-1, 1, 2)
        problem = attsvm.Problem(np.array([[[0.0], [-a], [c], [0.5]]]))
        required = [(1 + s) * a, (s - 1) * c, -9]
        solution = attsvm.solve_svm(problem, [0], norm, required=[[np.nan, *required]])
        assert solution.bound > 1e3
        if solution.status != "infeasible":
            (w,) = solution.direction
            assert solution.status == "inaccurate"
            assert max(1 + s - w, s - 1 + w) <= 1.01 * s + 1.01e-10 * np.abs(required).max() / min(a, c)


def test_members_of_a_batch_are_proved_each():
    required = np.array([[[np.nan, 1.0, b]] for b in (-1.1, 1e-5 - 1.0, -0.5, np.nan)])
    together = attsvm.solve_svm(OPPOSITE, np.zeros((4, 1), int), required=required)
    assert list(together.status) == ["optimal", "infeasible", "infeasible", "optimal"]
    assert (together.bound > 0).tolist() == [False, True, True, False]
