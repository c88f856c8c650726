"""Every public callable has an example, which pytest runs (``--doctest-modules``), and names its neighbours."""

import importlib
import inspect
import re

import pytest

MODULES = (
    *("attsvm", "attsvm.cache", "attsvm.datasets", "attsvm.estimator", "attsvm._utils.extensions", "attsvm.heads"),
    *("attsvm.losses", "attsvm.next_token", "attsvm.norms", "attsvm.optimizers", "attsvm.plot", "attsvm.reproduce"),
    *("attsvm.regularization", "attsvm.svm", "attsvm.svm.differentiable", "attsvm.sweeps", "attsvm.theory"),
    *("attsvm.torch", "attsvm.training"),
)
SEE_ALSO = re.compile(r"^See Also\n-+\n(.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)


def module(name):
    if name == "attsvm.torch":
        pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    return importlib.import_module(name)


def public(name):
    """The classes and functions that ``dir`` of a package shows, or that a module defines, by name."""
    home = name if not hasattr(module(name), "__path__") else "attsvm"
    found = {key: getattr(module(name), key) for key in dir(module(name)) if not key.startswith("_")}
    return {
        key: value
        for key, value in found.items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith(home)
    }


def defined(path):
    """Whether the dotted name of a "See Also" entry exists."""
    found = importlib.import_module("attsvm")
    for i, name in enumerate(path.split(".")[1:], start=2):
        if not hasattr(found, name):
            try:
                found = importlib.import_module(".".join(path.split(".")[:i]))
            except ImportError:
                return False
        else:
            found = getattr(found, name)
    return True


@pytest.mark.parametrize("name", MODULES)
def test_every_public_callable_has_an_example_and_names_its_neighbours(name):
    docstrings = {key: inspect.getdoc(value) or "" for key, value in public(name).items()}
    assert docstrings
    assert [key for key, text in docstrings.items() if ">>> " not in text] == []
    sections = {key: SEE_ALSO.search(text) for key, text in docstrings.items()}
    assert [key for key, section in sections.items() if not section and not key.endswith("Error")] == []
    listed = {
        entry.strip()
        for section in filter(None, sections.values())
        for line in section[1].split("\n")
        if not line.startswith(" ")
        for entry in line.partition(" :")[0].split(",")
    }
    assert [entry for entry in sorted(listed) if not defined(entry)] == []
