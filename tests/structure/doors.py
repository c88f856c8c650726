"""What the packages of attsvm take from each other, and past which doors: read from the source.

A package below ``attsvm``, or a module beside them, is a *room*. Its *door* is its ``__init__``, which lists the public
names (``__all__``, or the stub) and those for the other rooms (``__door__``). Public submodules are doors, too, and
each module of ``_utils`` is one.
"""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from structure import imports
from structure.imports import ROOT, SOURCE, Import, imports_of, parsed, statements

TESTS = ROOT / "tests"
TOOLBOX = "_utils"
PUBLIC_SUBMODULES = {
    "attsvm.cli.main",
    "attsvm.inspect.families",
    "attsvm.norms.factors",
    "attsvm.papers.figures",
    "attsvm.plot.style",
    "attsvm.svm.differentiable",
}
MOST_DOOR_NAMES = 12
"""As many names as ``__door__`` may list."""


modules = cache(imports.modules)
all_imports = cache(imports.all_imports)


def room(module: str) -> str:
    """The room of a module; "" for attsvm itself."""
    return [*module.split("."), ""][1]


def is_door(module: str) -> bool:
    """Whether other rooms may import from a module."""
    return module.count(".") <= 1 or module in PUBLIC_SUBMODULES or room(module) == TOOLBOX


@cache
def listed() -> dict[str, set[str]]:
    """The names that the doors of each room list."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules().items():
        if is_door(module) and room(module) != TOOLBOX:
            names = _literal(path, "__all__") | _literal(path, "__door__") | _of_stub(module, path)
            if not names and module in PUBLIC_SUBMODULES:
                names = {name for name in _read(path).definitions if not name.startswith("_")}
            found[room(module)] |= names
    for each in imports_of("attsvm", SOURCE / "__init__.pyi", modules()):
        found[room(each.target)].add(each.name)
    return found


def door_names() -> dict[str, frozenset[str]]:
    """What each door lists in ``__door__``."""
    found = {module: _literal(path, "__door__") for module, path in modules().items() if is_door(module)}
    return {name: names for name, names in found.items() if names}


@cache
def crossings() -> list[Import]:
    """Every name that a room takes from another one, the toolbox apart."""
    return [each for each in all_imports() if _crosses(each, room(each.module))]


def internal(found: list[Import]) -> list[Import]:
    """Those whose name no door lists; a module that is no door counts as a name."""
    return [each for each in found if each.name not in listed()[room(each.target)] and not _whole_door(each)]


def past_doors(found: list[Import]) -> list[Import]:
    """Those that import from a module that is no door."""
    return [each for each in found if not is_door(each.target)]


@cache
def crossings_of_tests() -> list[Import]:
    """Every name that a test takes from a room other than its own: that of the name of its folder or file."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        own = path.relative_to(TESTS).parts[0].removesuffix(".py").removeprefix("test_")
        found += [each for each in imports_of(f"tests.{own}.{path.stem}", path, modules()) if _crosses(each, own)]
    return found


def shared_class_names() -> dict[str, list[str]]:
    """The names, without underscores, that several top-level classes have, and the modules of these."""
    found = defaultdict(list)
    for module, path in modules().items():
        for name, definition in _read(path).definitions.items():
            if definition.is_class:
                found[name.strip("_")].append(module)
    return {name: places for name, places in found.items() if len(places) > 1}


def lines_of_code() -> int:
    """The lines of the package without docstrings, comments and empty lines."""
    return sum(_read(path).lines_of_code for path in modules().values())


def reading(start: str) -> int:
    """The lines to read to know what a call does that ``start`` defines.

    The modules of its room that it reaches, in full; of another room the definitions that it takes through a door, or
    past the door a whole module with what this reaches.
    """
    in_full: set[str] = set()
    definitions: set[tuple[str, str]] = set()
    left = [start]
    while left:
        module = left.pop()
        if module in in_full:
            continue
        in_full.add(module)
        for each in _imports_of_modules()[module]:
            if each.target not in modules():
                continue
            if room(each.target) == room(module) or not is_door(each.target):
                left.append(each.target)
            elif each.name:
                definitions.add(_home(each.target, each.name))
    whole = sum(len(modules()[module].read_text(encoding="utf-8").splitlines()) for module in in_full)
    taken = [_read(modules()[module]).definitions.get(name) for module, name in definitions if module not in in_full]
    return whole + sum(each.lines for each in taken if each is not None)


def _home(module: str, name: str) -> tuple[str, str]:
    """The module that defines a name which a door offers, and its name there."""
    for each in _imports_of_modules()[module]:
        if each.name == name and each.target in modules() and name not in _read(modules()[module]).definitions:
            return _home(each.target, name)
    return module, name


@cache
def _imports_of_modules() -> dict[str, list[Import]]:
    found: dict[str, list[Import]] = defaultdict(list)
    for each in all_imports():
        found[each.module].append(each)
    return found


def _crosses(each: Import, own: str) -> bool:
    inside = each.target.split(".")[0] == "attsvm" and room(each.target) not in ("", TOOLBOX)
    return inside and own not in ("", room(each.target))


def _whole_door(each: Import) -> bool:
    return not each.name and is_door(each.target)


class _Definition(NamedTuple):
    """A top-level statement that gives a name to something."""

    is_class: bool
    lines: int
    strings: frozenset[str]  # where it is a list of them


class _File(NamedTuple):
    definitions: dict[str, _Definition]
    lines_of_code: int


@cache
def _read(path: Path) -> _File:
    tree = parsed(path)
    found: dict[str, _Definition] = {}
    for node in tree.body:
        for name in _names(node):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            found[name] = _Definition(isinstance(node, ast.ClassDef), lines, _strings(getattr(node, "value", None)))
    docstrings: set[int] = set()
    left: list[ast.AST] = [tree]
    while left:
        inner = left.pop()
        left += statements(inner)
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant) and isinstance(inner.value.value, str):
            docstrings |= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    text = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return _File(found, sum(bool(x.strip()) and x.strip()[0] != "#" and line not in docstrings for line, x in text))


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [each.id for each in targets if isinstance(each, ast.Name)]
    return []


def _strings(value: ast.expr | None) -> frozenset[str]:
    parts = value.elts if isinstance(value, ast.List | ast.Tuple) else []
    return frozenset(each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str))


def _literal(path: Path, name: str) -> frozenset[str]:
    """The strings of a list that a module assigns to a name."""
    return _read(path).definitions[name].strings if name in _read(path).definitions else frozenset()


def _of_stub(module: str, path: Path) -> set[str]:
    stub = path.with_suffix(".pyi")
    return {each.name for each in imports_of(module, stub, modules())} if stub.exists() else set()
