"""``attsvm solve``: solve the Att-SVM of a selection in a problem file."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli import completion
from attsvm.cli.exits import exit_status
from attsvm.cli.options import ForceFile, Json, OutFile, ProblemFile, Threads
from attsvm.cli.shared import announce, command_line, finish, limit_threads
from attsvm.norms.registry import norm_spellings
from attsvm.pages.folder import check_file
from attsvm.pages.terminal import columns_table, pairs_table

if TYPE_CHECKING:
    from attsvm.problem import Problem
    from attsvm.svm import Solution

SCHEMA = "attsvm.solve/1"

NORM_NAMES = norm_spellings().replace('"', "`")  # in Markdown "l<p>" would lose its <p>

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens and optionally queries, keys,
mask, query_mask (and labels and head for `--selected optimal`). The selection is a file `.npy`, or `.npz` with the name
`selected`. It holds one integer for each query, or one boolean for each query and token. `--selected optimal` selects
the optimal tokens under the labels and the head of the problem.

An infeasible selection is a result, with a proof. The exit status is 3 if a solution is `inaccurate`.

Examples:

    attsvm solve problem.npz --selected optimal

    attsvm solve problem.npz --selected kept.npy --norm nuclear --out solution.npz

    attsvm solve problem.npz --selected kept.npy --norm l1.75 --json

    attsvm solve problem.npz --selected kept.npy --slack 10

    attsvm solve problem.npz --selected kept.npy --norm my_package.norms:MyNorm
"""


def solve(
    problem_file: ProblemFile,
    selected: Annotated[str, typer.Option(metavar="FILE|optimal", help="The token that each query selects.")],
    norm: Annotated[
        str,
        typer.Option(
            metavar="NORM",
            autocompletion=completion.NORMS,
            help=f"Norm of the weights: {NORM_NAMES}, or `package.module:name`.",
        ),
    ] = "frobenius",
    relaxed: Annotated[
        str | None, typer.Option(metavar="FILE", help="Booleans: the queries that need a margin of 0 only.")
    ] = None,
    slack: Annotated[
        float | None, typer.Option(metavar="C", help="Allow violated margins, at a price of C per unit (soft margin).")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Largest rank of the weights, for the nuclear norm.")] = None,
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-8,
    max_steps: Annotated[int | None, typer.Option(help="Largest number of steps of an iterative method.")] = None,
    out: OutFile = None,
    force: ForceFile = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Solve the Att-SVM of a selection."""
    limit_threads(threads)
    check_file(out, force, (problem_file, selected, relaxed))
    announce(out)

    import numpy as np

    from attsvm._utils.archives import read_array
    from attsvm.pages.plain import dumps
    from attsvm.problem import Problem
    from attsvm.selection import optimal_tokens
    from attsvm.svm import solve_svm

    problem = Problem.load(problem_file)
    chosen = optimal_tokens(problem) if selected == "optimal" else read_array(selected, "selected")
    solution = solve_svm(
        problem,
        chosen,
        norm,
        relaxed=None if relaxed is None else read_array(relaxed, "relaxed"),
        slack=slack,
        rank=rank,
        tol=tol,
        max_steps=max_steps,
    )
    if out is not None:
        solution.save(out)
    if json:
        print(dumps(as_numbers(problem, solution, source=problem_file, command=command_line(), threads=threads)))
    else:
        _show(solution)
    finish(out, "the solution", exit_status(np.ravel(solution.status).tolist(), "solution"))


def as_numbers(
    problem: "Problem", solution: "Solution", *, source: str, command: str, threads: int | None
) -> dict[str, Any]:
    """The solution as JSON-able numbers, as documented in docs/guide/results.md."""
    import numpy as np

    from attsvm.pages.plain import command_result

    names = ("status", "value", "margin", "objective", "gap", "violation", "raw_violation", "bound", "stats")
    return command_result(
        SCHEMA,
        command,
        {
            "threads": threads,
            "data": {"source": source, "sha256": problem.data_hash},
            "norm": solution.norm.name,
            "slack": solution.slack,
            "rank": solution.rank,
            "selected": solution.selected,
            "relaxed": solution.relaxed,
            **{name: getattr(solution, name) for name in names},
            "support": np.argwhere(solution.support),
            "direction": solution.direction,
        },
    )


def _show(solution: "Solution") -> None:
    from rich.console import Console

    Console().print(_table_of_batch(solution) if solution.batch_shape else _table_of_one(solution))


def _table_of_batch(solution: "Solution") -> Any:
    import numpy as np

    from attsvm.pages.words import number

    rows = []
    for index in np.ndindex(solution.batch_shape):
        one = solution[index]
        numbers = (number(float(x)) for x in (one.value, one.margin))
        place = ", ".join(map(str, index))
        rows.append((place, str(one.status), *numbers, f"{int(one.support.sum()):,}", number(float(one.gap))))
    measured = ("value", "margin", "support tokens", "gap")
    return columns_table(("problem", "status", *measured), rows, right=measured)


def _table_of_one(solution: "Solution") -> Any:
    from attsvm.pages.words import number
    from attsvm.results import Status

    rows = [("status", str(solution.status))]
    if solution.status == Status.INFEASIBLE:
        rows.append(("Farkas bound: no smaller norm separates rows of length 1", number(float(solution.bound))))
    else:
        rows.append((f"value, least {solution.norm.name} norm", f"{solution.value:.10g}"))
        if solution.slack is not None:
            rows.append((f"objective at C = {solution.slack:g}", f"{solution.objective:.10g}"))
        rows.append(("margin", f"{solution.margin:.10g}" if abs(float(solution.margin)) < float("inf") else "-"))
        rows.append(("support tokens", f"{int(solution.support.sum()):,}"))
        rows.append(("relative duality gap", number(float(solution.gap))))
        rows.append(("largest violation, relative", number(float(solution.violation))))
    rows.append(("method", f"{solution.stats['method']} ({solution.stats['why']})"))
    rows.append(("steps, seconds", f"{solution.stats['steps']:,}, {solution.stats['seconds']:.3g}"))
    return pairs_table(rows)
