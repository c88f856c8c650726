"""Public names have docstrings. Those that users call have an example, which pytest runs, and name their neighbours."""

import importlib
import inspect
import re
from dataclasses import is_dataclass
from functools import cached_property
from pathlib import Path

import pytest

MODULES = (
    *("attsvm", "attsvm.datasets", "attsvm.estimator", "attsvm.heads", "attsvm.measures"),
    *("attsvm.losses", "attsvm.next_token", "attsvm.norms", "attsvm.optimizers", "attsvm.plot", "attsvm.papers"),
    *("attsvm.regularization", "attsvm.svm", "attsvm.svm.differentiable", "attsvm.sweeps", "attsvm.theory"),
    *("attsvm.inspect", "attsvm.texts", "attsvm.torch", "attsvm.training"),
)
API = Path(__file__).parents[2] / "docs" / "api"
TYPES = re.compile(r"^Types\n-+\n(.*)", re.DOTALL | re.MULTILINE)  # the last section of a page
ENTRIES = re.compile(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
SEE_ALSO = re.compile(r"^See Also\n-+\n(.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)


def module(name):
    if name in ("attsvm.inspect", "attsvm.torch"):
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


def plumbing():
    """The types of arguments, results and fields that the API pages list last: users seldom name one."""
    sections = {page.stem: TYPES.search(page.read_text(encoding="utf-8")) for page in API.glob("*.rst")}
    return {
        getattr(module(f"attsvm.{page}"), name)
        for page, section in sections.items()
        if section
        for name in re.findall(r"^   (\w+)$", section[1], re.MULTILINE)
    }


def undocumented(value):
    text = inspect.getdoc(value) or ""
    return not text or text.startswith(f"{value.__name__}(")  # which a dataclass or a named tuple writes itself


@pytest.mark.parametrize("name", MODULES)
def test_every_public_callable_and_its_public_methods_have_docstrings(name):
    assert [key for key, value in public(name).items() if undocumented(value)] == []
    members = {
        f"{key}.{member}": getattr(value, member)
        for key, value in public(name).items()
        if inspect.isclass(value)
        for member, found in vars(value).items()
        if not member.startswith("_") and member not in getattr(value, "__dataclass_fields__", ())
        if inspect.isfunction(found) or isinstance(found, property | classmethod | staticmethod | cached_property)
    }
    assert [key for key, value in members.items() if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_callable_that_users_name_has_an_example_and_names_its_neighbours(name):
    pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    left_out = plumbing()
    docstrings = {key: inspect.getdoc(value) or "" for key, value in public(name).items()}
    demanded = {key for key, value in public(name).items() if value not in left_out}
    assert demanded
    assert [key for key in sorted(demanded) if ">>> " not in docstrings[key]] == []
    sections = {key: SEE_ALSO.search(text) for key, text in docstrings.items()}
    assert [key for key in sorted(demanded) if not sections[key] and not key.endswith("Error")] == []
    listed = {
        entry.strip()
        for section in filter(None, sections.values())
        for line in section[1].split("\n")
        if not line.startswith(" ")
        for entry in line.partition(" :")[0].split(",")
    }
    assert [entry for entry in sorted(listed) if not defined(entry)] == []


def entries(value):
    """The parameters and attributes that a docstring lists."""
    lines = (line for section in ENTRIES.findall(inspect.getdoc(value) or "") for line in section.split("\n"))
    names = (name for line in lines if line[:1].strip() for name in line.partition(" : ")[0].split(","))
    return {name.strip(" *") for name in names}


@pytest.mark.parametrize("name", [*MODULES, "attsvm.profiles"])
def test_parameters_and_attributes_have_the_names_of_their_docstrings(name):
    """They are in American spelling, unlike the text around them."""
    values = public(name)
    for key, value in [*values.items()]:
        if inspect.isclass(value):
            values |= {f"{key}.{name}": x for name, x in vars(value).items() if inspect.isfunction(x)}
    wrong = {
        key: entries(value) - {*inspect.signature(value).parameters, *dir(value)}
        for key, value in values.items()
        if inspect.isfunction(value) or is_dataclass(value)
    }
    # those that end with _ are made by fit
    assert {key: each for key, names in wrong.items() if (each := [one for one in names if one[-1:] != "_"])} == {}
