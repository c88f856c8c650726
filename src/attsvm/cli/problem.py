"""``attsvm problem``: describe a problem file, or write an example."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.outputs import check_file
from attsvm.cli.options import Json, ProblemFile
from attsvm.cli.shared import command_line, finish
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.problem import Problem

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens (n, T, d), and optionally
labels, head, queries, keys, mask, query_mask, bias_index, offsets. In Python, `attsvm.Problem(...).save("problem.npz")`
writes such a file. A JSON file with the same names and nested lists, as saved by `attsvm playground`, works as well.

Examples:

    attsvm problem my_problem.npz --example

    attsvm problem my_problem.npz

    attsvm problem prompt.npz --example --sequences 20 --tokens 12 --dim 5 --prompt --seed 1

    attsvm problem my_problem.npz --json
"""


def problem(
    problem_file: ProblemFile,
    example: Annotated[bool, typer.Option("--example", help="Write a random problem to PROBLEM.")] = False,
    sequences: Annotated[int | None, typer.Option(help="Number of sequences in the example.  [default: 6]")] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Number of tokens in each sequence of the example.  [default: 8]")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the tokens of the example.  [default: 10]")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Write an example without queries.")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of the example.  [default: 0]")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace PROBLEM if it exists.")] = False,
    json: Json = False,
) -> None:
    """Describe a problem file, or write an example."""
    path = Path(problem_file)
    sizes: dict[str, Any] = {
        "sequences": sequences,
        "tokens": tokens,
        "dim": dim,
        "prompt": prompt or None,
        "seed": seed,
    }
    given = {name: value for name, value in sizes.items() if value is not None}
    if given and not example:
        raise ProblemError(f"--{min(given)}: only allowed with --example, which writes a problem")
    if example:
        check_file(path, force, ending=".npz")

    from attsvm.pages import make_page
    from attsvm.problem import Problem

    if example:
        _example(**given).save(path)
    make_page(Problem.load(path), source=problem_file, command=command_line()).show(json)
    if example:
        finish(path, "the example")


def _example(sequences: int = 6, tokens: int = 8, dim: int = 10, prompt: bool = False, seed: int = 0) -> "Problem":
    from attsvm.datasets import random_problem
    from attsvm.problem import Problem

    drawn = random_problem(sequences, tokens, dim, seed)
    return Problem(drawn.tokens, labels=drawn.labels, head=drawn.head) if prompt else drawn
