"""The page of ``attsvm problem``: sizes, labels and optimal tokens of a problem."""

from typing import Any

import numpy as np

from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.problems import ProblemResult
from attsvm.pages.words import Rows, number, status_counts, status_words
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens
from attsvm.svm import solve_svm


def problem_page(problem: Problem, *, source: str, command: str) -> Page:
    """Make the page of a problem, whose numbers docs/guide/results.md documents; it has no HTML."""
    canonical = problem.canonical
    numbers = ProblemResult.fill(
        problem,
        command=command,
        data={"source": source, "sha256": problem.data_hash},
        batch_shape=list(problem.model_shape),
        query_dim=problem.query_dim if problem.has_queries else None,
        queries_per_sequence=problem.query_shape[-1] if problem.has_query_axis else int(problem.has_queries),
        allowed_tokens=float(canonical.allowed.mean()),
        active_queries=float(canonical.active.mean()),
        shapes={name: list(array.shape) for name, array in problem.arrays().items()},
        labels=_label_counts(problem),
        optimal_tokens=_optimal(problem),
    )
    return Page(numbers, terminal=[Table(_rows(numbers))])


def _label_counts(problem: Problem) -> dict[str, int] | None:
    if problem.labels is None:
        return None
    arrays = problem.arrays()
    active = arrays.get("query_mask", np.ones((), bool))
    labels, counts = np.unique(arrays["labels"][np.broadcast_to(active, arrays["labels"].shape)], return_counts=True)
    sign = "+" if problem.num_classes is None else ""
    return {f"{int(label):{sign}d}": int(n) for label, n in zip(labels, counts, strict=True)}


def _optimal(problem: Problem) -> dict[str, Any] | None:
    """Whether the optimal tokens are separable, if they are known: the counts of each status."""
    if problem.labels is None or problem.head is None or problem.num_classes is not None:
        return None
    solution = solve_svm(problem, optimal_tokens(problem))
    return {"status": status_counts(solution.status), "value": None if problem.batch_shape else solution.value}


def _rows(result: dict[str, Any]) -> Rows:
    queries = result["queries_per_sequence"]
    attention = (
        f"W, queries per sequence: {queries}, d_q = {result['query_dim']}" if queries else "a prompt p (no queries)"
    )
    rows = [
        ("sequences × tokens × entries", f"{result['sequences']} × {result['tokens']} × {result['dim']}"),
        ("attention", attention),
        ("arrays", ", ".join(f"{name} {tuple(shape)}" for name, shape in result["shapes"].items() if shape)),
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
        value = "" if found["value"] is None else f", least Frobenius norm {number(found['value'])}"
        rows.append(("Att-SVM of the optimal tokens", status_words(found["status"]) + value))
    rows.append(("SHA-256", result["data"]["sha256"][:16] + "..."))
    return rows
