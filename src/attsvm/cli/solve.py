"""``attsvm solve``: solve the Att-SVM of a selection in a problem file."""

from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.checks import check_positive
from attsvm._utils.outputs import check_file
from attsvm.cli import completion
from attsvm.cli.exits import exit_status
from attsvm.cli.options import ForceFile, Json, OutFile, ProblemFile, Threads
from attsvm.cli.shared import announce, command_line, finish
from attsvm.errors import ProblemError
from attsvm.norms import norm_spellings

NORM_NAMES = norm_spellings().replace('"', "`")  # in Markdown "l<p>" would lose its <p>

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens and optionally queries, keys,
mask, query_mask, bias_index, offsets (and labels and head for `--selected optimal`). The selection is a file `.npy`,
or `.npz` with the name `selected`. It holds one integer for each query, or one boolean for each query and token.
`--selected optimal` selects the optimal tokens for the labels and the head of the problem. Margins other than 1 for
single tokens, and a centre other than 0 for the norm, are possible only in Python: `attsvm.solve_svm(problem,
selected, required=, center=)`.

If the selection is infeasible, the result has Farkas multipliers. The exit status is 3 if a solution is `inaccurate`.

Examples:

    attsvm solve problem.npz --selected optimal

    attsvm solve problem.npz --selected kept.npy --norm nuclear --out solution.npz

    attsvm solve problem.npz --selected kept.npy --norm l1.75 --json

    attsvm solve problem.npz --selected kept.npy --slack 10

    attsvm solve problem.npz --selected kept.npy --norm my_package.norms:MyNorm
"""


def solve(
    problem_file: ProblemFile,
    selected: Annotated[
        str | None, typer.Option(metavar="FILE|optimal", help="The token that each query selects.  [required]")
    ] = None,
    norm: Annotated[
        str,
        typer.Option(
            metavar="NORM",
            autocompletion=completion.NORMS,
            help=f"Norm of the weights: {NORM_NAMES}, or `package.module:name`.",
        ),
    ] = "frobenius",
    relaxed: Annotated[
        str | None, typer.Option(metavar="FILE", help="Booleans: the queries for which a margin of 0 is enough.")
    ] = None,
    slack: Annotated[
        float | None, typer.Option(metavar="C", help="Allow violated margins, at a cost of C per unit (soft margin).")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Largest rank of the weights; only with the nuclear norm.")] = None,
    tol: Annotated[float, typer.Option(help="Relative duality gap to reach.")] = 1e-8,
    max_steps: Annotated[int | None, typer.Option(help="Largest number of steps of iterative methods.")] = None,
    out: OutFile = None,
    force: ForceFile = False,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Solve the Att-SVM of a selection."""
    if selected is None or (selected != "optimal" and Path(selected).suffix not in (".npy", ".npz")):
        got = "" if selected is None else f", got {selected!r}"
        raise ProblemError(f"--selected: expected `optimal`, or a file .npy or .npz{got}")
    check_positive("--tol", tol)
    check_file(out, force, (problem_file, selected, relaxed), ".npz")
    announce(out)

    import numpy as np

    from attsvm._utils.archives import read_array
    from attsvm.pages import make_page
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
    page = make_page(solution, problem=problem, source=problem_file, command=command_line(), threads=threads)
    page.show(json)
    finish(out, "the solution", exit_status(np.ravel(solution.status).tolist(), "solution"))
