"""Who imports whom in ``src/attsvm``, read from the source: nothing is imported here."""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "attsvm"
LAYOUT = ROOT / "CONTRIBUTING.md"

NAMES_OF_DISTRIBUTIONS = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "huggingface-hub": "huggingface_hub",
    "lazy-loader": "lazy_loader",
    "google-crc32c": "google_crc32c",
}


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target``: a module of the package, or the top-level name of another one.

    ``name``: what it takes from the target; "" where it takes the module itself.
    """

    module: str
    target: str
    name: str
    line: int
    in_function: bool = False
    for_types: bool = False

    def __str__(self) -> str:
        how = " in a function" if self.in_function else " for types" if self.for_types else ""
        return f"{self.module} imports {self.target}{how} (line {self.line})"


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["attsvm", *path.relative_to(SOURCE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def layers() -> tuple[dict[str, int], dict[str, int]]:
    """The layer of each module or package below ``attsvm``, and its group there, from ``CONTRIBUTING.md``.

    A row of the table is a layer. Semicolons divide it into groups that do not import each other.
    """
    layer, group = {}, {}
    for number, packages in re.findall(r"^\| (\d+) \| ([^|]+) \|", LAYOUT.read_text(encoding="utf-8"), re.MULTILINE):
        for place, members in enumerate(packages.split(";")):
            for name in re.findall(r"`([^`]+)`", members):
                layer[name], group[name] = int(number), place
    return layer, group


def optional_dependencies() -> set[str]:
    """Top-level modules that only an extra installs, and Lightning, whose users install it by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = {_distribution(line) for name, lines in extras.items() if name != "dev" for line in lines}
    required = {_distribution(line) for line in [project["name"], *project["dependencies"]]}
    return {NAMES_OF_DISTRIBUTIONS.get(name, name) for name in listed - required} | {"lightning"}


def all_imports() -> list[Import]:
    """Every import of every module, a line for each name; a lazy package imports what its stub lists."""
    known = modules()
    found = []
    for module, path in known.items():
        found += imports_of(module, path, known)
        stub = path.with_suffix(".pyi")
        if stub.exists():
            found += imports_of(module, stub, known)
    return found


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """The nodes of a cycle of a graph; none if there is no cycle."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def imports_of(module: str, path: Path, known: dict[str, Path]) -> Iterator[Import]:
    """The imports of one file, which is ``module`` or a stub or a test; ``known``: the modules of the package."""
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    tree = parsed(path)
    for node, in_function, for_types in _statements(tree, False, False):
        for target, name in _targets(node, package, known):
            yield Import(module, target, name, node.lineno, in_function, for_types)


def parsed(path: Path) -> ast.Module:
    """The source of a file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements directly inside one, and the branches that hold others; no expression has statements."""
    inside = ast.stmt | ast.ExceptHandler | ast.match_case
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, inside))


def _statements(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[tuple[ast.stmt, bool, bool]]:
    for child in statements(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, in_function, for_types
        inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        types = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        yield from _statements(child, inside, types)


def _targets(node: ast.stmt, package: str, known: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """The modules that a statement imports, each with the name that it takes from there."""
    if isinstance(node, ast.Import):
        pairs = [(alias.name, "") for alias in node.names]
    else:
        assert isinstance(node, ast.ImportFrom)
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])]) if node.level else ""
        base = base or node.module or ""
        # `from package import name` imports the module of that name where there is one, else the package
        inner = {alias.name: f"{base}.{alias.name}" for alias in node.names}
        pairs = [(whole, "") if whole in known else (base, name) for name, whole in inner.items()]
    for target, name in dict.fromkeys(pairs):
        yield (target, name) if target.split(".")[0] == "attsvm" else (target.split(".")[0], "")


def _distribution(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement)[0].replace("_", "-").lower()  # type: ignore[index]
