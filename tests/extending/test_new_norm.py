"""A norm defined outside the package, through every public function that takes a norm."""

import json

# docs: begin
from dataclasses import dataclass

import numpy as np

from attsvm.norms import Lp, Norm


@dataclass(frozen=True)
class LargestRow(Norm):
    """The largest Euclidean length of a row."""

    name = "largest_row"

    def value(self, x, axes=2):
        return float(np.sqrt(np.sum(x * x, axis=tuple(range(1, axes)))).max())  # a row of a vector is one entry

    @property
    def dual(self):
        return SumOfRows()

    def steepest(self, g):
        xp = g.__array_namespace__()
        lengths = xp.sqrt(xp.sum(g * g, axis=tuple(range(1, g.ndim)), keepdims=True))
        return g / xp.where(lengths > 0, lengths, 1.0)

    @property
    def of_vectors(self):
        return Lp(float("inf"))  # the rows of a column are its entries


@dataclass(frozen=True)
class SumOfRows(Norm):
    """The sum of the Euclidean lengths of the rows."""

    name = "sum_of_rows"

    def value(self, x, axes=2):
        return float(np.sqrt(np.sum(x * x, axis=tuple(range(1, axes)))).sum())


# docs: end

import pytest  # noqa: E402

import attsvm  # noqa: E402
from attsvm.optimizers import steepest_descent  # noqa: E402
from attsvm.training import Run  # noqa: E402


@dataclass(frozen=True)
class ShortRows(SumOfRows):
    """The same with a dual norm and a prox."""

    name = "short_rows"

    @property
    def dual(self):
        return LargestRow()

    def prox(self, x, step):
        lengths = np.sqrt(np.sum(x * x, axis=tuple(range(1, x.ndim)), keepdims=True))
        return x * np.maximum(1 - step / np.maximum(lengths, 1e-300), 0)  # each row is shortened by the step


HERE = "test_new_norm:LargestRow"


@pytest.fixture
def problem():
    return attsvm.datasets.random_problem(5, 4, 6, seed=3)


def train(problem, **options):
    return attsvm.train(problem, optimizer=steepest_descent(norm=LargestRow(), learning_rate=0.01), steps=40, **options)


def test_it_is_found_by_its_import_path():
    assert attsvm.norms.parse_norm(HERE) == LargestRow()
    with pytest.raises(attsvm.ProblemError, match=r"test_new_norm:np: expected a Norm"):
        attsvm.norms.parse_norm("test_new_norm:np")


@pytest.mark.parametrize("norm", [LargestRow(), SumOfRows(), ShortRows()], ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (4,)])
def test_its_pieces_belong_together_on_matrices_and_on_vectors(norm, shape):
    assert max(attsvm.norms.check(norm, shape=shape).errors.values()) < 1e-6


def test_margins_of_a_prompt_are_margins_in_this_norm():
    problem = attsvm.datasets.random_problem(5, 4, 6, seed=3, prompt=True)
    p, selected = np.random.default_rng(0).standard_normal(6), attsvm.optimal_tokens(problem)
    gaps = problem.tokens[np.arange(5), selected][:, None] @ p - problem.tokens @ p
    gaps[np.arange(5), selected] = np.inf
    least = gaps.min()
    assert attsvm.margin(problem, p, selected, LargestRow()) == pytest.approx(least / np.abs(p).max())
    assert attsvm.margin(problem, p, selected, SumOfRows()) == pytest.approx(least / np.abs(p).sum())


def test_margins_of_a_batch_are_margins_in_this_norm(problem):
    W = np.random.default_rng(0).standard_normal((3, 6, 6))
    selected = attsvm.optimal_tokens(problem)
    plain = attsvm.margin(problem, W, selected)
    lengths = np.linalg.norm(W, axis=2).max(axis=1)
    np.testing.assert_allclose(
        attsvm.margin(problem, W, selected, LargestRow()), plain * np.linalg.norm(W, axis=(1, 2)) / lengths
    )


def test_its_kinds_of_convergence_are_told_apart(problem):
    solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=ShortRows())
    assert attsvm.classify(problem, 100 * solution.direction, norm=ShortRows()).kind == "global"


def test_a_path_in_it_is_refused_by_name(problem):
    with pytest.raises(attsvm.ProblemError, match=r"norm: .*largest_row"):
        attsvm.regularization_path(problem, [1.0, 2.0], norm=LargestRow())


def test_what_a_norm_lacks_is_named(problem):
    class NoDual(ShortRows):
        name = "no_dual"
        dual = Norm.dual

    selected = attsvm.optimal_tokens(problem)
    with pytest.raises(attsvm.ProblemError, match="no_dual does not provide `dual`"):
        attsvm.solve_svm(problem, selected, norm=NoDual())
    with pytest.raises(attsvm.ProblemError, match="sum_of_rows does not provide `steepest`"):
        attsvm.train(problem, optimizer=steepest_descent(norm=SumOfRows()), steps=3)


@pytest.mark.parametrize("prompt", [False, True])
def test_every_step_of_descent_moves_each_row_by_the_learning_rate(prompt, tmp_path):
    problem = attsvm.datasets.random_problem(5, 4, 6, seed=3, prompt=prompt)
    run = train(problem, record=[0, 1, 2])
    moved = np.diff(run.history["weights"], axis=0).reshape(2, 6, -1)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=2), 0.01)
    assert run.norm == LargestRow()
    run.save(tmp_path / "run.npz")
    loaded = Run.load(tmp_path / "run.npz")
    assert loaded.norm == LargestRow()
    further = attsvm.train(problem, init=loaded, steps=10)
    assert further.step == 50


@pytest.mark.parametrize(
    ("norm", "tol"),
    [(ShortRows(), 1e-8), (LargestRow(), 1e-5)],  # by its prox, and by its steepest direction
    ids=str,
)
def test_the_answer_is_certified_in_this_norm(problem, norm, tol, tmp_path):
    selected = attsvm.optimal_tokens(problem)
    solution = attsvm.solve_svm(problem, selected, norm=norm, tol=tol)
    assert solution.status == "optimal"
    lengths = np.linalg.norm(solution.direction, axis=1)
    assert solution.value == pytest.approx(lengths.sum() if norm == ShortRows() else lengths.max())
    solution.save(tmp_path / "solution.npz")
    loaded = attsvm.Solution.load(tmp_path / "solution.npz")
    assert loaded.norm == norm
    np.testing.assert_array_equal(loaded.direction, solution.direction)
    assert attsvm.margin_ratio(problem, solution.direction, selected, norm) == pytest.approx(1, abs=2 * tol)


def test_the_direction_of_a_run_is_predicted(problem):
    prediction = attsvm.predict_direction(problem, train(problem))
    assert prediction.norm == LargestRow()
    assert prediction.standing in ("conjecture", "none")  # such steps were not measured
    assert "largest_row" in repr(prediction)


def test_the_command_line_solves_in_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    norm = "test_new_norm:ShortRows"
    code, out, _ = command("solve", tmp_path / "problem.npz", "--selected", "optimal", "--norm", norm, "--json")
    assert code == 0
    assert json.loads(out)["norm"] == "short_rows"


def test_the_command_line_trains_by_descent_in_it(command, problem, tmp_path):
    problem.save(tmp_path / "problem.npz")
    options = ("--optimizer", "steepest_descent", "--option", f"norm={HERE}", "--steps", 5)
    code, _, error = command("train", tmp_path / "problem.npz", *options, "--out", tmp_path / "run.npz")
    assert code == 0, error
    assert Run.load(tmp_path / "run.npz").norm == LargestRow()
