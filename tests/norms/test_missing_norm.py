"""Results in a norm that is not imported: their numbers are read, and the norm is named."""

import dataclasses
import importlib
import sys

import numpy as np
import pytest

import attsvm
from attsvm.norms import (
    Lp,
    MaxOfHeads,
    Nuclear,
    OnColumns,
    OnRows,
    Owl,
    Scaled,
    Spectral,
    SumOfHeads,
    parse_norm,
    read_norm,
    schatten,
    written_norm,
)
from attsvm.optimizers import steepest_descent

MODULE = """
from dataclasses import dataclass
import numpy as np
from attsvm.norms import Norm

@dataclass(frozen=True)
class Mine(Norm):
    factor: float
    name = "mine"

    def value(self, x, axes=2):
        return self.factor * float(np.linalg.norm(x))

    @property
    def dual(self):
        return Mine(1 / self.factor)

    def steepest(self, g):
        xp = g.__array_namespace__()
        length = xp.sqrt(xp.sum(g * g))
        return g / (self.factor * xp.where(length > 0, length, 1.0))
"""
LOST = "norm: mine was defined in a_lost_module:Mine, which cannot be used here .*import a_lost_module first"


@pytest.fixture(scope="module")
def problem():
    return attsvm.datasets.random_problem(3, 4, 5, seed=0)


@pytest.fixture(scope="module")
def results(problem, tmp_path_factory):
    """One result of each type that has a norm, written to a file; then the module of the norm is gone."""
    folder = tmp_path_factory.mktemp("lost")
    (folder / "a_lost_module.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    try:
        mine = importlib.import_module("a_lost_module").Mine(2.0)
        run = attsvm.train(problem, optimizer=steepest_descent(norm=mine), steps=5)
        path = attsvm.regularization_path(problem, [1.0, 2.0])
        made = [
            attsvm.solve_svm(problem, run.selected, norm=mine),
            run,
            attsvm.predict_direction(problem, run),
            attsvm.feasibility(problem, run.selected, norm=mine),
            dataclasses.replace(path, norm=mine),
        ]
        for k, result in enumerate(made):
            result.save(folder / f"{k}.npz")
    finally:
        sys.path.remove(str(folder))
        del sys.modules["a_lost_module"]
        (folder / "a_lost_module.py").unlink()
    return [(result, type(result).load(folder / f"{k}.npz")) for k, result in enumerate(made)]


@pytest.mark.parametrize("k", range(5))
def test_the_numbers_are_read_and_the_norm_is_named(results, k):
    written, read = results[k]
    solution = getattr(read, "solution", None) or read
    assert (solution.norm.name, solution.norm.path) == ("mine", "a_lost_module:Mine")
    assert repr(read)
    for name in ("value", "direction", "weights", "dual"):
        if hasattr(written, name):
            np.testing.assert_array_equal(getattr(read, name), getattr(written, name))


def test_what_needs_the_norm_says_where_it_was_defined(problem, results):
    run = results[1][1]
    for ask in (
        lambda: attsvm.train(problem, init=run, steps=3),
        lambda: attsvm.predict_direction(problem, run),
        lambda: attsvm.solve_svm(problem, run.selected, norm=run.norm),
        lambda: attsvm.margin(problem, run.weights, run.selected, norm=run.norm),
        lambda: attsvm.margin_ratio(problem, run.weights, run.selected, norm=run.norm),
    ):
        with pytest.raises(attsvm.ProblemError, match=LOST):
            ask()


# where 1.0 had the norms that it wrote to files
MODULES = {
    "attention_heads": [SumOfHeads(Lp(2)), MaxOfHeads(Nuclear())],
    "lifted": [OnRows(Lp(1)), OnColumns(Lp(4)), schatten(3)],
    "lp": [Lp(1.5)],
    "owl": [Owl([2, 1])],
    "scaled": [Scaled(Lp(3), 0.3)],
    "schatten": [Nuclear(), Spectral()],
    "factors.fused": [parse_norm("fused_kq")],
    "factors.gamma2": [parse_norm("gamma2")],
    "factors.nu": [parse_norm("nu")],
}


@pytest.mark.parametrize(("module", "norm"), [(module, norm) for module, norms in MODULES.items() for norm in norms])
def test_norms_in_files_of_1_0_are_found(module, norm):
    assert read_norm({**written_norm(norm), "class": f"attsvm.norms.{module}:{type(norm).__name__}"}) == norm
