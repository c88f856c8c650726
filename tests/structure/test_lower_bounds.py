"""The lower bounds in pyproject.toml are what `make test-oldest` installs, and what the docs list."""

import re
import tomllib

from structure.imports import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OLDEST = (ROOT / "tests" / "release" / "oldest.txt").read_text(encoding="utf-8")
REQUIREMENT = re.compile(r"^([A-Za-z0-9_-]+)>=([\d.]+)$")
NOT_TESTED = {"torch"}  # CONTRIBUTING's machines have one version of it


def bounds():
    """The lower bound of each package that users install, by name."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name in extras.keys() - {"docs", "dev"} for line in extras[name])]
    found = [REQUIREMENT.match(line) for line in lines if not line.startswith("attsvm[")]
    assert all(found), "expected name>=version, without an upper bound"
    return {match[1]: match[2] for match in found}


def release(version):
    """The numbers of a version, without the zeros at its end."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def test_the_oldest_versions_are_the_lower_bounds():
    tested = dict(re.findall(r"^([A-Za-z0-9_-]+)==([\d.]+)", OLDEST, re.MULTILINE))
    assert {name for name, bound in bounds().items() if name not in tested} == set()
    differ = {name for name, bound in bounds().items() if release(bound) != release(tested[name])}
    assert differ == NOT_TESTED


def test_the_docs_list_the_lower_bounds():
    page = (ROOT / "docs" / "guide" / "versions.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| ([A-Za-z0-9_-]+) \| ([\d.]+) \|", page, re.MULTILINE)) == bounds()


def test_there_is_no_upper_bound_of_python():
    assert PROJECT["requires-python"] == ">=3.11"
