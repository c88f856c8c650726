"""The table of pages: every class in it exists, and so does the function of its page."""

import importlib
from operator import attrgetter

import pytest

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
