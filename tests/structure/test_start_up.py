"""What starting costs: no command and no import loads JAX or another heavy package before it is needed."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import attsvm
from structure.imports import SOURCE

MODULES = {page.stem for page in (Path(__file__).parents[2] / "docs" / "api").glob("*.rst")} - {"index"}

HEAVY = {"jax", "optax", "torch", "matplotlib", "sklearn", "scipy", "pandas", "cvxpy", "transformers"}

STARTS = {
    "import attsvm": "import attsvm",
    "attsvm --version": "sys.argv = ['attsvm', '--version']; from attsvm.cli.main import main; run(main)",
    "attsvm --help": "sys.argv = ['attsvm', '--help']; from attsvm.cli.main import main; run(main)",
    "attsvm solv": "sys.argv = ['attsvm', 'solv']; from attsvm.cli.main import main; run(main)",
}

RUN = """
import sys
def run(main):
    try:
        main()
    except SystemExit:
        pass
{start}
print("loaded:", *sorted({heavy!r} & set(sys.modules)))
"""


@pytest.mark.parametrize("start", STARTS)
def test_starting_loads_nothing_heavy(start):
    code = RUN.format(start=STARTS[start], heavy=HEAVY)
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "loaded:", found.stdout


TRAINING = """
import sys
import attsvm, jax.numpy as jnp
attsvm.train, attsvm.datasets.random_problem
assert jnp.zeros(1, float).dtype == "float32"
print(*sorted({"sklearn.base", "scipy.linalg", "scipy.optimize", "matplotlib", "torch"} & set(sys.modules)))
"""


def test_importing_the_training_loads_nothing_that_it_does_not_use_and_leaves_jax_in_single_precision():
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", TRAINING], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


EXCEPTIONS = """
import attsvm
attsvm.datasets.random_problem, attsvm.datasets.digit_canvases
import sklearn.exceptions, sklearn.utils.validation
assert sklearn.utils.validation.NotFittedError is sklearn.exceptions.NotFittedError
"""


def test_a_later_import_of_scikit_learn_has_one_copy_of_each_class():
    subprocess.run([sys.executable, "-W", "ignore", "-c", EXCEPTIONS], check=True)


def test_the_package_lists_the_names_of_its_stub_and_no_others():
    names = re.findall(r"^from \S+ import \w+ as (\w+)$", (SOURCE / "__init__.pyi").read_text(), re.MULTILINE)
    assert len(names) == len(set(names))
    assert sorted(dir(attsvm)) == sorted(names) == sorted(attsvm.__all__)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_public_module_lists_what_it_exports(name):
    if name in ("inspect", "torch"):
        pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    module = importlib.import_module(f"attsvm.{name}")
    assert dir(module) == sorted(module.__all__)
    exported = [getattr(module, each) for each in module.__all__]
    assert not [each for each in exported if (inspect.isclass(each) or inspect.isfunction(each)) and not each.__doc__]


def test_everything_exported_is_documented():
    assert not [name for name in attsvm.__all__ if not getattr(attsvm, name).__doc__]
