"""Size of the source: files, lines, long functions, functions with many parameters, long files.

    python benchmarks/code_size.py [--list] [FOLDER ...]

A folder is a package, ``src/attsvm`` by default; several are compared side by side.
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

LONG_FUNCTION = 60
LONG_FILE = 400
MANY_PARAMETERS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[Function]:
    """Every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def lines_with_docstring(function: Function) -> int:
    """Lines from ``def`` to the end; decorators do not count."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def lines_of_code(function: Function) -> int:
    """The same without the docstring."""
    first = function.body[0]
    if ast.get_docstring(function) is None:
        return lines_with_docstring(function)
    return lines_with_docstring(function) - ((first.end_lineno or first.lineno) - first.lineno + 1)


def parameters(function: Function) -> int:
    """Parameters of every kind, without ``self`` and ``cls``."""
    given = function.args
    named = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")]) + bool(given.vararg) + bool(given.kwarg)


def measured(folder: Path) -> dict[str, list[str]]:
    """What is counted, each with the places it is counted in."""
    files = sorted(folder.rglob("*.py"))
    sizes = {path: path.read_text(encoding="utf-8").count("\n") for path in files}
    found: dict[str, list[str]] = {
        "files": [str(path) for path in files],
        "lines": ["" for path in files for _ in range(sizes[path])],
        f"files over {LONG_FILE} lines": [f"{path}: {n}" for path, n in sizes.items() if n > LONG_FILE],
    }
    in_code, with_docstring, wide = [], [], []
    for path in files:
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path}:{function.lineno} {function.name}"
            if lines_of_code(function) > LONG_FUNCTION:
                in_code.append(f"{where}: {lines_of_code(function)}")
            if lines_with_docstring(function) > LONG_FUNCTION:
                with_docstring.append(f"{where}: {lines_with_docstring(function)}")
            if parameters(function) > MANY_PARAMETERS:
                wide.append(f"{where}: {parameters(function)}")
    found[f"functions over {LONG_FUNCTION} lines, without docstrings"] = in_code
    found[f"functions over {LONG_FUNCTION} lines, with docstrings"] = with_docstring
    found[f"functions with over {MANY_PARAMETERS} parameters"] = wide
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(__file__).parents[1] / "src" / "attsvm"])
    parser.add_argument("--list", action="store_true", help="name the places too")
    arguments = parser.parse_args()
    columns = [measured(folder) for folder in arguments.folders]
    for name in columns[0]:
        print(f"{name:<48}" + "".join(f"{len(column[name]):>9,}" for column in columns))
        if arguments.list and name not in ("files", "lines"):
            print(*(f"    {place}" for column in columns for place in column[name]), sep="\n")


if __name__ == "__main__":
    main()
