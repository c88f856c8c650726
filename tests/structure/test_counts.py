"""Doors between the rooms, and the counts that may only fall."""

import importlib
import subprocess
import sys

import pytest

from structure.counts import LINES, LISTS, limits, measure
from structure.doors import MOST_DOOR_NAMES, PUBLIC_SUBMODULES, door_names, listed
from structure.imports import imports_of, modules


@pytest.mark.parametrize("name", [*LISTS, *LINES])
def test_no_count_rises(name):
    found, limit = measure(name), limits()[name]
    hint = f"and `python -m structure.counts {name}`" if name in LISTS else "on when to raise it by hand in counts.toml"
    assert found <= limit, f"{name} rose to {found}; see CONTRIBUTING.md, Doors, {hint}"
    if name in LISTS:
        assert found == limit, f"{name} fell to {found}: run `make counts`, so that it cannot rise again"


def test_the_file_has_every_count():
    assert limits().keys() == LISTS.keys() | LINES.keys()


def test_doors_are_narrow_and_are_not_public():
    for module, names in door_names().items():
        package = importlib.import_module(module)
        assert len(names) <= MOST_DOOR_NAMES
        assert not names & set(getattr(package, "__all__", ()))
        assert all(hasattr(package, name) for name in names)


def test_no_module_has_the_name_of_something_that_a_lazy_door_offers():
    """The import of such a module, by pickle too, would put it in the place of the name."""
    stubs = [(module, path.with_suffix(".pyi")) for module, path in modules().items() if path.stem == "__init__"]
    offered = [each for module, stub in stubs if stub.exists() for each in imports_of(module, stub, modules())]
    assert len(offered) > 100
    assert not [str(each) for each in offered if each.name and f"{each.module}.{each.name}" in modules()]


def test_public_submodules_are_modules():
    assert set(modules()) >= PUBLIC_SUBMODULES


LAZY = """
import sys
from attsvm.regularization import barrier_of
print(*sorted(each for each in sys.modules if each.startswith("attsvm.regularization.")))
import attsvm.regularization
assert attsvm.regularization.ball_of.registry.keys() >= {attsvm.norms.Spectral, attsvm.norms.Nuclear}
"""


def test_a_door_loads_the_module_of_a_name_and_no_other():
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", LAZY], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["attsvm.regularization.barriers"]
    assert "barrier_of" in listed()["regularization"]
