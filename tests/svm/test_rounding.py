"""Rounding counts: what an answer claims is true in exact arithmetic, and no breakdown of a solver raises."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attsvm
from attsvm.norms import Norm, parse_norm
from attsvm.selection import selection_sets
from attsvm.svm.certificate import certify
from attsvm.svm.constraints.attention_heads import stacked_heads
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.exact import ExactConstraints
from attsvm.svm.methods.registry import Candidate, solver
from harness.exact import Rows, check_solution

NORMS = ["frobenius", "l1", "l1.05", "l3", "linf", "nuclear", "spectral"]


def exact_margins(tokens, queries, selected, weights):
    """A(W) of every other token, in fractions."""
    allowed = np.ones((len(tokens), 1, tokens.shape[1]), bool)
    sets = (np.asarray(selected)[:, None] == np.arange(tokens.shape[1]))[:, None]
    return Rows.of(tokens, queries[:, None], allowed, sets, None).margins(weights)


def spread(seed: int, scales: str = "token"):
    """A problem that some weights keep, with tokens, or their entries, that span 1e-10 to 1e8."""
    generator = np.random.default_rng(seed)
    n, T, d = 3, 4, 4
    shape = {"token": (n, T, 1), "entry": (n, T, d), "feature": (1, 1, d)}[scales]
    tokens = generator.standard_normal((n, T, d)) * 10.0 ** generator.uniform(-10, 8, shape)
    queries, hidden = generator.standard_normal((n, d)), generator.standard_normal((d, d))
    selected = np.einsum("ntd,de,ne->nt", tokens, hidden, queries).argmax(axis=1)
    return tokens, queries, selected


@pytest.mark.parametrize("norm", NORMS)
def test_margins_of_an_optimal_answer_are_what_it_claims(norm):
    for seed in range(8):
        tokens, queries, selected = spread(seed, ("token", "entry", "feature")[seed % 3])
        solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm)
        assert solution.status in ("optimal", "inaccurate")
        smallest = min(exact_margins(tokens, queries, selected, solution.direction))
        assert 1 - smallest <= Fraction(solution.gap) + Fraction(1, 10**15)
        assert 1 - smallest <= Fraction(solution.raw_violation)


def test_margins_lost_to_rounding_are_not_called_optimal():
    # the second row is 1e16 times as long as the first, so its margin of 1 is rounded away in floats
    long, other = 3.0e7, 0.7e8
    tokens = np.array([[[0.0, 0.0], [-1e-8, 0.0]], [[0.0, 0.0], [long, -other]]])
    problem, queries = attsvm.Problem(tokens), np.ones((2, 1))
    constraints = Constraints.of(problem, selection_sets(problem, [0, 0]))
    weights = np.array([[1e8], [1e8 * long / other]])
    truth = min(exact_margins(tokens, queries, [0, 0], weights))
    assert truth < 1 - Fraction(1, 10**3)
    solution = attsvm.solve_svm(problem, [0, 0])
    done = certify(constraints, parse_norm("frobenius"), weights, solution.dual[:, None], tol=1e-8)
    assert done.gap > 1e-8


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("exponent", [-200, 150])
def test_the_scale_of_tokens_changes_no_certificate(norm, exponent):
    problem = attsvm.datasets.random_problem(4, 5, 6, seed=1)
    scaled = attsvm.Problem(problem.tokens * 2.0**exponent, queries=problem.queries)
    one, other = (attsvm.solve_svm(each, [0, 1, 2, 3], norm) for each in (problem, scaled))
    assert other.gap == pytest.approx(one.gap, rel=1e-6, abs=1e-12)
    assert other.violation == pytest.approx(one.violation, rel=1e-6, abs=1e-15)
    assert one.status == other.status == "optimal"


@pytest.mark.parametrize(
    ("norm", "seed", "per"), [("nuclear", 744, "feature"), ("nuclear", 1107, "sequence"), ("l3", 75, "sequence")]
)
def test_problems_that_broke_a_solver_down(norm, seed, per):
    generator = np.random.default_rng(seed)
    n, T, d = (int(generator.integers(low, high)) for low, high in ((1, 6), (2, 7), (1, 6)))
    shape = (1, 1, d) if per == "feature" else (n, 1, 1)
    tokens = generator.standard_normal((n, T, d)) * 10.0 ** generator.uniform(-10, 8, shape)
    queries, hidden = generator.standard_normal((n, d)), generator.standard_normal((d, d))
    selected = np.einsum("ntd,de,ne->nt", tokens, hidden, queries).argmax(axis=1)
    if seed % 3 == 0:
        selected = generator.integers(0, T, n)
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm)
    assert solution.status in ("optimal", "inaccurate")
    assert np.isfinite(solution.direction).all()


@pytest.mark.parametrize(("tokens", "queries", "C"), [(1e2, 1e2, 1e6), (1e4, 1e3, 1.0), (1e4, 1e3, 1e6)])
def test_slack_of_long_rows(tokens, queries, C):
    generator = np.random.default_rng(0)
    batch = 20
    problem = attsvm.Problem(
        tokens * generator.standard_normal((batch, 6, 4, 2)), queries=queries * generator.standard_normal((batch, 6, 2))
    )
    solution = attsvm.solve_svm(problem, np.zeros((batch, 6), int), slack=C)
    assert np.isfinite(solution.direction).all()
    assert np.count_nonzero(solution.status == "optimal") >= 19
    assert set(solution.status) <= {"optimal", "inaccurate"}


@dataclass(frozen=True)
class Fragile(Norm):
    """The Frobenius norm, whose solver breaks down on every second problem."""

    name = "fragile"

    def value(self, x, axes=2):
        return float(np.linalg.norm(x))

    @property
    def dual(self):
        return self


@solver(Fragile, methods=())
def solve_fragile(constraints, norm, settings, method=None):
    if constraints.keys.max() > 1e3:
        raise np.linalg.LinAlgError("SVD did not converge")
    found = Candidate.nothing(constraints, "always")
    return found._replace(weights=np.full_like(found.weights, np.nan))


def test_a_breakdown_is_inaccurate_and_the_others_of_a_batch_are_not_lost():
    problem = attsvm.datasets.random_problem(3, 4, 6, seed=0, batch=(2,))
    selected = np.zeros((2, 3), int)
    plain = attsvm.solve_svm(problem, selected)
    tokens = problem.tokens * np.array([1.0, 1e6])[:, None, None, None]
    solution = attsvm.solve_svm(attsvm.Problem(tokens, queries=problem.queries), selected, Fragile())
    assert solution.status.tolist() == ["inaccurate", "optimal"]  # NaN; and the answer in the Frobenius norm
    assert np.isfinite(solution.direction).all()
    assert solution.value[1] * 1e6 == pytest.approx(plain.value[1], rel=1e-12)
    single = attsvm.solve_svm(attsvm.Problem(tokens[1], queries=problem.queries[1]), selected[1], Fragile())
    assert single.status == "optimal"
    assert "failed numerically" in single.stats["why"]


@pytest.mark.parametrize("num_queries", [None, 3, 40])
@pytest.mark.parametrize(
    ("of_tokens", "of_queries"), [(-100, 0), (100, 0), (-200, 100), (-200, 200), (0, -95), (45, 46), (-300, 300)]
)
def test_rows_whose_squares_leave_the_floats_are_refused(num_queries, of_tokens, of_queries):
    generator = np.random.default_rng(0)
    tokens = generator.standard_normal((8, 30, 8))
    queries = generator.standard_normal((8, 8) if num_queries is None else (8, num_queries, 8))
    queries[0] = 0  # rows of zeros are no error
    problem = attsvm.Problem(tokens * 10.0**of_tokens, queries=queries * 10.0**of_queries)
    selected = np.zeros(queries.shape[:-1], int)
    with pytest.raises(attsvm.ProblemError, match=r"0 or between 1e-90 and 1e\+90, got .*; scale them"):
        attsvm.solve_svm(problem, selected)
    fine = attsvm.Problem(tokens * 1e40, queries=queries * 1e-80)
    assert attsvm.solve_svm(fine, selected).status == "infeasible"  # because of the query of zeros


def test_the_farkas_bound_is_that_of_the_multipliers_that_are_returned():
    for seed in range(40):
        tokens, queries, _ = spread(seed, "entry")
        selected = np.random.default_rng(seed).integers(0, 4, 3)
        tokens[0, (selected[0] + 1) % 4] = (
            2 * tokens[0, selected[0]] - tokens[0, (selected[0] + 2) % 4]
        )  # opposite rows
        problem = attsvm.Problem(tokens, queries=queries)
        solution = attsvm.solve_svm(problem, selected)
        assert check_solution(Rows.of_problem(problem, selected), "frobenius", solution) == ""


@pytest.mark.parametrize("norm", NORMS)
def test_right_answers_of_badly_conditioned_features_are_optimal(norm):
    """The weights of long features are small, so that margins lose no digits, whatever ‖row‖ ‖W‖ is."""
    for seed in range(4):
        generator = np.random.default_rng(seed)
        tokens = np.round(generator.standard_normal((2, 3, 2)) * 100) * np.array([1.0, 2.0**26])
        tokens[:, 0] += [1000.0, 0.0]
        problem = attsvm.Problem(tokens)
        solution = attsvm.solve_svm(problem, [0, 0], norm)
        assert check_solution(Rows.of_problem(problem, [0, 0]), solution.norm.name, solution) == ""
        assert solution.status == "optimal"


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 2, 3]), st.booleans())
def test_exact_products_are_rounded_once(seed, heads, several):
    generator = np.random.default_rng(seed)
    n, Q, T, d = 2, 2 if several else 1, 3, 3
    scale = 10.0 ** generator.uniform(-30, 30, (n, T, d))
    tokens, queries = generator.standard_normal((n, T, d)) * scale, generator.standard_normal((n, Q, d))
    problem = attsvm.Problem(tokens, queries=queries, num_heads=heads)
    sets = generator.integers(0, T, (*([heads] if heads else []), n, Q))[..., None] == np.arange(T)
    whole = Constraints.of(problem, sets)
    stacked = stacked_heads(whole) if heads else whole
    exact = ExactConstraints.of_problem(stacked, problem, sets, 0)
    weights = generator.standard_normal((heads or 1, d, d)) * 10.0 ** generator.uniform(-30, 30, (d, d))
    multipliers = generator.random((heads or 1, n, Q, T)) * ~sets
    margins = exact.apply(weights.reshape(stacked.weights_shape)).reshape(multipliers.shape)
    short = exact.slack(weights.reshape(stacked.weights_shape)).reshape(multipliers.shape)
    pulls = exact.adjoint(multipliers.reshape(stacked.right.shape)).reshape(weights.shape)
    for h in range(heads or 1):
        rows = Rows.of(tokens, queries, np.ones((n, Q, T), bool), sets[h] if heads else sets, None)
        at = tuple(np.transpose(rows.at))
        expected = rows.margins(weights[h])
        assert margins[h][at].tolist() == [float(each) for each in expected]
        assert short[h][at].tolist() == [float(each - 1) for each in expected]
        pull = rows.adjoint([float(multipliers[h][place]) for place in rows.at])
        assert pulls[h].tolist() == [[float(each) for each in line] for line in pull]
