"""``attsvm problem``: describe a problem file, or write an example."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.options import Json, ProblemFile
from attsvm.cli.shared import command_line, finish
from attsvm.pages.folder import check_file
from attsvm.pages.terminal import pairs_table

if TYPE_CHECKING:
    from attsvm.problem import Problem

SCHEMA = "attsvm.problem/1"

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens (n, T, d), and optionally
labels, head, queries, keys, mask, query_mask. In Python, `attsvm.Problem(...).save("problem.npz")` writes one. A JSON
file with the same names and nested lists, as `attsvm playground` saves it, is read as well.

Examples:

    attsvm problem my_problem.npz --example

    attsvm problem my_problem.npz

    attsvm problem prompt.npz --example --sequences 20 --tokens 12 --dim 5 --prompt --seed 1

    attsvm problem my_problem.npz --json
"""


def problem(
    problem_file: ProblemFile,
    example: Annotated[bool, typer.Option("--example", help="Write a random problem to PROBLEM.")] = False,
    sequences: Annotated[int, typer.Option(help="Number of sequences of the example.")] = 6,
    tokens: Annotated[int, typer.Option(help="Number of tokens of each sequence of the example.")] = 8,
    dim: Annotated[int, typer.Option(help="Number of entries of each token of the example.")] = 10,
    prompt: Annotated[bool, typer.Option("--prompt", help="Write an example without queries.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the example.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace PROBLEM if it exists.")] = False,
    json: Json = False,
) -> None:
    """Describe a problem file, or write an example."""
    path = Path(problem_file)
    if example:
        check_file(path, force)

    from attsvm.pages.plain import dumps
    from attsvm.problem import Problem

    if example:
        _example(sequences, tokens, dim, prompt, seed).save(path)
    result = as_numbers(Problem.load(path), source=problem_file, command=command_line())
    print(dumps(result)) if json else _show(result)
    if example:
        finish(path, "the example")


def _example(sequences: int, tokens: int, dim: int, prompt: bool, seed: int) -> "Problem":
    from attsvm.datasets import random_problem
    from attsvm.problem import Problem

    drawn = random_problem(sequences, tokens, dim, seed)
    return Problem(drawn.tokens, labels=drawn.labels, head=drawn.head) if prompt else drawn


def as_numbers(problem: "Problem", *, source: str, command: str) -> dict[str, Any]:
    """The description as JSON-able numbers, as documented in docs/guide/results.md."""
    from attsvm.pages.plain import command_result

    canonical = problem.canonical
    return command_result(
        SCHEMA,
        command,
        {
            "data": {"source": source, "sha256": problem.data_hash},
            "batch_shape": list(problem.model_shape),
            "sequences": problem.num_sequences,
            "tokens": problem.num_tokens,
            "dim": problem.dim,
            "key_dim": problem.key_dim,
            "query_dim": problem.query_dim if problem.has_queries else None,
            "queries_per_sequence": problem.query_shape[-1] if problem.has_query_axis else int(problem.has_queries),
            "classes": problem.num_classes,
            "attention_heads": problem.num_heads,
            "allowed_tokens": float(canonical.allowed.mean()),
            "active_queries": float(canonical.active.mean()),
            "shapes": {name: list(array.shape) for name, array in problem.arrays().items()},
            "labels": _label_counts(problem),
            "optimal_tokens": _optimal(problem),
        },
    )


def _label_counts(problem: "Problem") -> dict[str, int] | None:
    import numpy as np

    if problem.labels is None:
        return None
    arrays = problem.arrays()
    active = arrays.get("query_mask", np.ones((), bool))
    labels, counts = np.unique(arrays["labels"][np.broadcast_to(active, arrays["labels"].shape)], return_counts=True)
    sign = "+" if problem.num_classes is None else ""
    return {f"{int(label):{sign}d}": int(n) for label, n in zip(labels, counts, strict=True)}


def _optimal(problem: "Problem") -> dict[str, Any] | None:
    """Whether the optimal tokens are separable, if they are known: the counts of each status."""
    import numpy as np

    if problem.labels is None or problem.head is None or problem.num_classes is not None:
        return None
    from attsvm.selection import optimal_tokens
    from attsvm.svm import solve_svm

    solution = solve_svm(problem, optimal_tokens(problem))
    words, counts = np.unique(solution.status, return_counts=True)
    return {
        "status": dict(zip(words.tolist(), counts.tolist(), strict=True)),
        "value": solution.value if not problem.batch_shape else None,
    }


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console

    from attsvm.pages.words import number

    queries = result["queries_per_sequence"]
    rows = [
        ("sequences × tokens × entries", f"{result['sequences']} × {result['tokens']} × {result['dim']}"),
        (
            "attention",
            f"W, queries per sequence: {queries}, d_q = {result['query_dim']}"
            if queries
            else "a prompt p (no queries)",
        ),
        ("arrays", ", ".join(f"{name} {tuple(shape)}" for name, shape in result["shapes"].items())),
    ]
    if result["batch_shape"]:
        rows.insert(0, ("batch of problems", " × ".join(map(str, result["batch_shape"]))))
    if result["attention_heads"]:
        rows.append(("attention heads", str(result["attention_heads"])))
    if result["labels"]:
        rows.append(("labels", ", ".join(f"{n} of {label}" for label, n in result["labels"].items())))
    if result["allowed_tokens"] < 1:
        rows.append(("allowed tokens", f"{result['allowed_tokens']:.1%}"))
    if result["optimal_tokens"]:
        found = result["optimal_tokens"]
        states = ", ".join(name if n == 1 else f"{n} {name}" for name, n in found["status"].items())
        value = "" if found["value"] is None else f", least Frobenius norm {number(found['value'])}"
        rows.append(("Att-SVM of the optimal tokens", states + value))
    rows.append(("SHA-256", result["data"]["sha256"][:16] + "..."))
    Console().print(pairs_table(rows))
