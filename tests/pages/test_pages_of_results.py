"""The table of pages: every class in it exists, and a page imports nothing of the others."""

import importlib
import subprocess
import sys
from operator import attrgetter

import pytest

from attsvm.pages import make_page
from attsvm.pages.kinds import PAGES


@pytest.mark.parametrize("kind", PAGES)
def test_a_class_of_results_has_a_page(kind):
    module, _, name = kind.rpartition(".")
    if module.startswith(("attsvm.inspect", "xarray")):
        pytest.importorskip("torch" if ".inspect" in module else "xarray")
    found = attrgetter(name)(importlib.import_module(module))
    assert f"{found.__module__}.{found.__qualname__}" == kind
    page, _, function = PAGES[kind].partition(":")
    assert callable(getattr(importlib.import_module(f"attsvm.pages.{page}"), function))


ALONE = """
import sys
import attsvm
from attsvm.pages import make_page
problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
make_page(solution, problem=problem, source="problem.npz", command="attsvm solve")
print(*sorted({"attsvm.pages.fit", "attsvm.pages.claims", "attsvm.pages.run", "attsvm._fit", "jax", "matplotlib"}
    & set(sys.modules)))
"""


def test_a_page_imports_nothing_of_other_kinds():
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_class_without_a_page_is_refused_by_name():
    with pytest.raises(TypeError, match="expected a result that has a page, got dict"):
        make_page({})
