"""The counts of the house that may only fall: tests/structure/counts.toml.

PYTHONPATH=tests python -m structure.counts           # prints them; `make counts` also writes what has fallen
PYTHONPATH=tests python -m structure.counts NAME      # what a count is made of
"""

import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from structure import doors
from structure.doors import crossings, crossings_of_tests, internal, past_doors, reading, room, shared_class_names

FILE = Path(__file__).with_suffix(".toml")
CALLS = {
    "solve_svm": "attsvm.svm.solve",
    "train": "attsvm.training.trainer",
    "predict_direction": "attsvm.theory.prediction",
    "fit": "attsvm._fit.fitting",
}


def internal_names() -> list[str]:
    """Names that no door lists and that another room takes."""
    return _sorted(f"{each.target}: {each.name}" for each in internal(crossings()))


def imports_past_doors() -> list[str]:
    """Pairs of a module and a module of another room that is no door."""
    return _sorted(f"{each.module} -> {each.target}" for each in past_doors(crossings()))


def internal_names_in_tests() -> list[str]:
    """Names that no door lists and that the tests of another room take."""
    found = internal(crossings_of_tests())
    return _sorted(f"tests of {room(each.module)}: {each.target}: {each.name}" for each in found)


def shared_names() -> list[str]:
    """Class names that more than one class has."""
    return [f"{name}: {', '.join(places)}" for name, places in sorted(shared_class_names().items())]


LISTS: dict[str, Callable[[], list[str]]] = {
    "internal_names": internal_names,
    "imports_past_doors": imports_past_doors,
    "internal_names_in_tests": internal_names_in_tests,
    "shared_class_names": shared_names,
}
LINES: dict[str, Callable[[], int]] = {
    "lines_of_code": doors.lines_of_code,
    **{f"reading_{call}": partial(reading, module) for call, module in CALLS.items()},
}


def limits() -> dict[str, int]:
    """The file: the largest value that each count may have."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def measure(name: str) -> int:
    """Today's value of a count."""
    return len(LISTS[name]()) if name in LISTS else LINES[name]()


def write() -> None:
    """Write the counts that have fallen; one that has risen keeps its limit."""
    text = FILE.read_text(encoding="utf-8")
    for name, limit in limits().items():
        text = text.replace(f"\n{name} = {limit}\n", f"\n{name} = {min(limit, measure(name))}\n")
    FILE.write_text(text, encoding="utf-8")


def _sorted(found: object) -> list[str]:
    return sorted(set(found))  # type: ignore[call-overload,no-any-return]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument == "--write":
            write()
        else:
            print(*LISTS[argument](), sep="\n")
    if sys.argv[1:] in ([], ["--write"]):
        for name, limit in limits().items():
            print(f"{name:26} {measure(name):6}, at most {limit}")
