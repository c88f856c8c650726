"""``attsvm.norms.check`` accepts right norms and finds every kind of error that is planted in one."""

from dataclasses import dataclass

import numpy as np
import pytest

import attsvm
from attsvm.norms import Lp, Norm, Nuclear, OnRows, Scaled, Spectral, check, parse_norm
from attsvm.optimizers import steepest_descent
from oracles import outside_norms
from oracles.outside_norms import LargestRow, longest_row


@dataclass(frozen=True)
class SumOfRows(outside_norms.SumOfRows):
    """The sum of the lengths of the rows, with everything that a norm can provide."""

    def steepest(self, g):
        return longest_row(g)


def planted(**pieces):
    """The right norm with some pieces replaced by wrong ones."""
    return dataclass(frozen=True)(type("Planted", (SumOfRows,), {**pieces, "name": "planted"}))()


def entries(power):
    return lambda self, x, axes=2: float((np.abs(x) ** power).sum() ** (1 / power))


def wrong_in_jax(self, g):
    return SumOfRows().steepest(g) * (1.0 if isinstance(g, np.ndarray) else 0.5)


def failing(self, x, axes=2):
    raise IndexError("a row too many")


def times(factor, piece):
    return lambda self, *arguments: factor * getattr(SumOfRows(), piece)(*arguments)


ERRORS = {
    "not homogeneous": ({"value": lambda self, x, axes=2: float(np.abs(x).sum() ** 0.5)}, "value: .*N.* W"),
    "not convex": ({"value": entries(0.5)}, r"value: expected N\(A \+ B\) <= N\(A\) \+ N\(B\)"),
    "a seminorm": ({"value": lambda self, x, axes=2: float(abs(x.flat[0]))}, "value: expected a positive number"),
    "an infinite value": ({"value": lambda self, x, axes=2: np.inf}, "value: expected one finite number"),
    "an offset": ({"value": lambda self, x, axes=2: 1e-3 + float(np.abs(x).sum())}, "value: expected 0 for an array"),
    "several values": ({"value": lambda self, x, axes=2: abs(x).sum(axis=0)}, "value: failed on an array"),
    "an exception": ({"value": failing}, r"value: failed on an array of shape \(4, 3\): IndexError.*`sample_shape`"),
    "other values at once": (
        {"values": lambda self, x, axes=2: np.abs(x).sum(tuple(range(-axes, 0)))},
        "values: expected",
    ),
    "a dual too small": ({"dual": Scaled(LargestRow(), 0.9)}, "dual: expected"),
    "a dual barely too small": ({"dual": Scaled(LargestRow(), 1 - 1e-7)}, "dual: expected |⟨A, B⟩"),
    "a dual too large": ({"dual": Scaled(LargestRow(), 1.01)}, r"dual: expected N\*\(∇N"),
    "another dual": ({"dual": Lp(np.inf)}, "dual: expected"),
    "a prox of half the step": ({"prox": lambda self, x, step: SumOfRows().prox(x, step / 2)}, "prox: expected"),
    "a prox of twice the step": ({"prox": lambda self, x, step: SumOfRows().prox(x, 2 * step)}, "prox: expected"),
    "a prox slightly off": ({"prox": times(1 + 1e-4, "prox")}, "prox: expected"),
    "a projection slightly off": ({"project_dual_ball": times(1 + 1e-4, "project_dual_ball")}, "project_dual_ball: "),
    "a direction too long": ({"steepest": times(1.001, "steepest")}, r"steepest: expected N\(D\) <= 1"),
    "a direction too short": ({"steepest": times(0.999, "steepest")}, "steepest: expected ⟨g, D⟩"),
    "another direction": ({"steepest": lambda self, g: g / SumOfRows().value(g)}, "steepest: expected"),
    "another direction in JAX": ({"steepest": wrong_in_jax}, "steepest: expected the same direction in JAX"),
    "a wrong invariance": ({"left_invariant": True}, "left_invariant: expected N.UW."),
    "a factor too small": ({"frobenius_factor": lambda self, shape: 1.0}, "frobenius_factor: expected"),
    "another norm of vectors": ({"of_vectors": Lp(2.0)}, "of_vectors: expected"),
}


@pytest.mark.parametrize("error", ERRORS)
def test_every_planted_error_is_named(error):
    pieces, words = ERRORS[error]
    with pytest.raises(attsvm.ProblemError, match=f"norm: planted.{words}"):
        check(planted(**pieces))


def test_errors_are_found_without_a_dual_too():
    without = {"dual": Norm.dual, "steepest": Norm.steepest}
    assert check(planted(**without)).missing == ("dual", "steepest")
    for prox in (times(1.01, "prox"), lambda self, x, step: SumOfRows().prox(x, 0.9 * step)):
        with pytest.raises(attsvm.ProblemError, match=r"planted\.prox: expected the minimiser"):
            check(planted(**without, prox=prox))


@pytest.mark.parametrize("norm", [SumOfRows(), OnRows(Lp(1)), Lp(1.3), Nuclear(), Spectral()], ids=str)
def test_right_norms_pass(norm):
    report = check(norm, jax=isinstance(norm, SumOfRows))
    assert report.missing == ()
    # the gradients are computed by differences
    assert all(error < (1e-7 if "gradient" in test else 1e-12) for test, error in report.errors.items())
    assert check(norm, shape=(5,), jax=False).missing == ()


@dataclass(frozen=True)
class OfOneShape(Norm):
    """Entrywise weights: only for arrays of one shape."""

    name = "of-one-shape"
    sample_shape = (2, 5)

    def value(self, x, axes=2):
        return float((np.arange(1, 11).reshape(2, 5) * np.abs(x)).sum())


def test_a_norm_of_one_shape_is_tested_in_it():
    assert check(OfOneShape()).missing == ("dual", "prox", "steepest")


def test_a_norm_from_outside_is_tested_once_where_it_is_first_used(monkeypatch):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    selected = attsvm.optimal_tokens(problem)
    wrong = planted(dual=Lp(2.0))
    for use in (
        lambda norm: attsvm.solve_svm(problem, selected, norm),
        lambda norm: attsvm.margin(problem, np.eye(5), selected, norm),
        lambda norm: attsvm.solve_svm(problem, selected, OnRows(Scaled(norm, 2.0))),
    ):
        with pytest.raises(attsvm.ProblemError, match=r"planted.*\.dual: expected"):
            use(wrong)
    with pytest.raises(attsvm.ProblemError, match="the same direction in JAX"):
        steepest_descent(norm=planted(steepest=wrong_in_jax))
    assert parse_norm(planted(steepest=wrong_in_jax)).name == "planted"  # solving needs no JAX
    calls = []
    counted = planted(value=lambda self, x, axes=2: calls.append(1) or SumOfRows().value(x))
    parse_norm(counted)
    number = len(calls)
    assert number > 0
    assert parse_norm(counted) is counted
    assert len(calls) == number


def test_a_norm_without_a_hash_is_refused():
    unhashable = type("Unhashable", (SumOfRows,), {"__hash__": None})()
    with pytest.raises(attsvm.ProblemError, match="expected a norm with equality and a hash"):
        parse_norm(unhashable)
