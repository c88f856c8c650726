"""Every public function and class has an entry in the API pages."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

API = Path(__file__).parents[1] / "docs" / "api"
PAGES = {page.stem: page.read_text(encoding="utf-8") for page in API.glob("*.rst")}


def module_of(page):
    return "attsvm" if page == "index" else f"attsvm.{page}"


def test_every_public_callable_is_listed():
    pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    listed, public = set(), {}
    for page, text in PAGES.items():
        module = importlib.import_module(module_of(page))
        entries = re.findall(r"^   (\w+)$", text, re.MULTILINE)
        listed |= {id(getattr(module, name)) for name in entries if hasattr(module, name)}
        names = dir(module) if page == "index" else getattr(module, "__all__", [])
        public |= {f"{module_of(page)}.{name}": getattr(module, name) for name in names}
    found = {name for name, value in public.items() if inspect.isfunction(value) or inspect.isclass(value)}
    assert found
    assert not {name for name in found if id(public[name]) not in listed}
