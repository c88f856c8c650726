"""``attsvm solve``: the Att-SVM of a selection in a problem file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.files import check_writable
from attsvm.cli.shared import command_line, limit_threads
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    import numpy as np

    from attsvm.problem import Problem
    from attsvm.svm import Solution

SCHEMA = "attsvm.solve/1"
UNFINISHED = 3
"""Exit status where an answer is neither optimal nor proved infeasible."""

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens and, where there are,
queries, keys, mask, query_mask (and labels and head for `--selected optimal`). The selection is a file with an integer
for each query, or with booleans for each query and token: `.npy`, or `.npz` with the name `selected`; `optimal` takes
the tokens that are best under the file's labels and head.

An infeasible selection is a result, with its proof. The exit status is 0, or 3 where the answer is `inaccurate`.

Examples:

    attsvm solve problem.npz --selected optimal

    attsvm solve problem.npz --selected kept.npy --norm nuclear --out solution.npz

    attsvm solve problem.npz --selected kept.npy --norm l1.75 --json

    attsvm solve problem.npz --selected kept.npy --slack 10
"""


def solve(
    problem_file: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem file `.npz`.")],
    selected: Annotated[str, typer.Option(metavar="FILE|optimal", help="What each query keeps.")],
    norm: Annotated[
        str, typer.Option(help="`frobenius`, `nuclear`, `spectral`, or `l<p>` with 1 ≤ p ≤ inf.")
    ] = "frobenius",
    relaxed: Annotated[
        str | None, typer.Option(metavar="FILE", help="Booleans: queries that need a margin of 0 only.")
    ] = None,
    slack: Annotated[float | None, typer.Option(metavar="C", help="Price of what margins lack (soft margin).")] = None,
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-8,
    max_steps: Annotated[int | None, typer.Option(help="Of an iterative method.")] = None,
    method: Annotated[str | None, typer.Option(help="Forces one method of the norm.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the solution, an `.npz`.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Solve the Att-SVM of a selection (the help is HELP)."""
    limit_threads(threads)
    if out is not None:
        check_writable(out, force)

    from rich.console import Console

    from attsvm.problem import Problem
    from attsvm.report.plain import dumps
    from attsvm.svm import solve_svm

    problem = Problem.load(problem_file)
    solution = solve_svm(
        problem,
        _selection(problem, selected),
        norm,
        relaxed=None if relaxed is None else _array(relaxed, "relaxed"),
        slack=slack,
        tol=tol,
        max_steps=max_steps,
        method=method,
    )
    if out is not None:
        solution.save(out)
    if json:
        print(dumps(as_numbers(problem, solution, source=problem_file, command=command_line(), threads=threads)))
    else:
        _show(Console(), solution)
    if out is not None:
        print(f"{out}: the solution", file=sys.stderr)
    if "inaccurate" in _statuses(solution):
        raise typer.Exit(UNFINISHED)


def as_numbers(
    problem: "Problem", solution: "Solution", *, source: str, command: str, threads: int | None
) -> dict[str, Any]:
    """The solution as JSON-able numbers, as documented in docs/guide/results.md."""
    import numpy as np

    from attsvm._version import __version__
    from attsvm.report.plain import jsonable

    names = ("status", "value", "margin", "objective", "gap", "violation", "raw_violation", "bound", "stats")
    return jsonable(
        {
            "schema": SCHEMA,
            "version": __version__,
            "command": command,
            "threads": threads,
            "data": {"source": source, "sha256": problem.data_hash},
            "norm": solution.norm.name,
            "slack": solution.slack,
            "selected": solution.selected,
            "relaxed": solution.relaxed,
            **{name: getattr(solution, name) for name in names},
            "support": np.argwhere(solution.support),
            "direction": solution.direction,
        }
    )


def _selection(problem: "Problem", text: str) -> "np.ndarray":
    if text == "optimal":
        from attsvm.selection import optimal_tokens

        return optimal_tokens(problem)
    return _array(text, "selected")


def _array(path: str, name: str) -> "np.ndarray":
    """The array of an ``.npy`` file, or of that name in an ``.npz`` archive."""
    import numpy as np

    from attsvm.storage import read_npz

    if path.endswith(".npz"):
        arrays, _ = read_npz(path)
        if name not in arrays:
            raise ProblemError(f"{path}: has no array {name!r}; found {', '.join(arrays) or 'nothing'}")
        return arrays[name]
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise ProblemError(f"{path}: no such file") from error
    except (OSError, ValueError, EOFError) as error:
        raise ProblemError(f"{path}: not a readable .npy file ({error})") from error


def _statuses(solution: "Solution") -> list[str]:
    import numpy as np

    return [str(status) for status in np.ravel(solution.status)]


def _show(console: Any, solution: "Solution") -> None:
    from rich import box
    from rich.table import Table

    from attsvm.report.fit.words import number

    if solution.batch_shape:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("problem", "status", "value", "margin", "support tokens", "gap"):
            table.add_column(name, justify="left" if name in ("problem", "status") else "right")
        import numpy as np

        for index in np.ndindex(solution.batch_shape):
            one = solution[index]
            numbers = (number(_finite(x)) for x in (one.value, one.margin))
            place = ", ".join(map(str, index))
            table.add_row(place, str(one.status), *numbers, f"{int(one.support.sum()):,}", number(_finite(one.gap)))
    else:
        table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
        table.add_row("status", str(solution.status))
        if solution.status == "infeasible":
            table.add_row("Farkas: norm of any separator, unit rows, ≥", number(float(solution.bound)))
        else:
            table.add_row(f"value, least {solution.norm.name} norm", f"{solution.value:.10g}")
            if solution.slack is not None:
                table.add_row(f"objective at C = {solution.slack:g}", f"{solution.objective:.10g}")
            table.add_row("margin", "-" if _finite(solution.margin) is None else f"{solution.margin:.10g}")
            table.add_row("support tokens", f"{int(solution.support.sum()):,}")
            table.add_row("relative duality gap", number(float(solution.gap)))
            table.add_row("largest violation, relative", number(float(solution.violation)))
        table.add_row("method", f"{solution.stats['method']} ({solution.stats['why']})")
        table.add_row("steps, seconds", f"{solution.stats['steps']:,}, {solution.stats['seconds']:.3g}")
    console.print(table)


def _finite(value: "float | np.ndarray") -> float | None:
    return float(value) if abs(float(value)) < float("inf") else None
