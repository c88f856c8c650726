"""A change of a public name or of its signature is a change of docs/api/public_api.txt."""

import difflib
import re

import pytest

from structure.public_api import FILE, public_api


def test_public_names_and_signatures_are_those_of_the_file():
    pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    found = public_api()
    assert not re.search(r"\bat 0x|\.locals>|<function", found)
    changes = difflib.unified_diff(FILE.read_text(encoding="utf-8").splitlines(), found.splitlines(), lineterm="", n=0)
    assert not list(changes), "run `make api`, and read docs/guide/versions.md on what a change of the file means"
