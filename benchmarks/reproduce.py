"""Compare `attsvm reproduce` with the method of the papers, on a share of the runs of the six longest figures.

The method of the papers trains one run after the other by autograd in PyTorch, and solves each Att-SVM with CVXPY, with
one expression per constraint (SCS for the nuclear norm). Both sides make the same number of runs of the same sizes,
with the published numbers of steps. Finished pieces are stored in a folder, so that an interrupted benchmark continues.

    python benchmarks/reproduce.py [--share 0.1] [--out out/benchmark-reproduce]
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import torch

import attsvm
from att_svm import Data, nuclear, per_constraint
from attsvm._utils.threads import num_threads
from attsvm.datasets import random_problem
from attsvm.papers import FIGURES, Arrays
from attsvm.papers.pieces import PieceStore
from training import torch_loop

Piece = Callable[..., Arrays]
Sizes = dict[str, Any]


def _selected(problem: attsvm.Problem, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ntd,de,ne->nt", problem.tokens, weights, problem.queries).argmax(axis=1)


def _solved(solve: Callable[..., Any], problem: attsvm.Problem, selected: np.ndarray, *arguments: Any) -> None:
    # CVXPY returns no weights for an infeasible problem
    with contextlib.suppress(cp.SolverError, AttributeError, TypeError):
        solve(Data(problem.tokens, problem.queries, selected), *arguments)


def _train(n: int, T: int, d: int, runs: int, steps: int, seed: int, solve: bool) -> Arrays:
    """W and (K, Q), one run after the other, and the Att-SVM of the selection of each run."""
    problems, generator = random_problem(n, T, d, seed, batch=(runs,)), np.random.default_rng(seed)
    begin = time.perf_counter()
    for i in range(runs):
        starts = generator.standard_normal((2, d, d))
        combined = torch_loop(problems[i], [starts[0]], steps)
        factored = torch_loop(problems[i], list(starts), steps)
        if solve:
            _solved(per_constraint, problems[i], _selected(problems[i], combined))
            _solved(nuclear, problems[i], _selected(problems[i], factored), "SCS")
    return {"seconds": np.array(time.perf_counter() - begin)}


def _solve(n: int, T: int, d: int, problems: int, seed: int, with_nuclear: bool) -> Arrays:
    """The Att-SVMs of the optimal tokens, one after the other."""
    many = random_problem(n, T, d, seed, batch=(problems,))
    begin = time.perf_counter()
    for i in range(problems):
        selected = attsvm.optimal_tokens(many[i])
        _solved(per_constraint, many[i], selected)
        if with_nuclear:
            _solved(nuclear, many[i], selected, "SCS")
    return {"seconds": np.array(time.perf_counter() - begin)}


def _nonlinear(n: int, T: int, d: int, runs: int, steps: int, seed: int) -> Arrays:
    problems, generator = random_problem(n, T, d, seed, batch=(runs,)), np.random.default_rng(seed)
    begin = time.perf_counter()
    for i in range(runs):
        torch_loop(problems[i], [generator.standard_normal((d, d))], steps, hidden=generator.standard_normal((10, d)))
    return {"seconds": np.array(time.perf_counter() - begin)}


def _mirror(n: int, T: int, d: int, runs: int, steps: int, p: float, norms: Sequence[float], seed: int) -> Arrays:
    problems, generator = random_problem(n, T, d, seed, batch=(runs,)), np.random.default_rng(seed)
    begin = time.perf_counter()
    for i in range(runs):
        weights = torch_loop(problems[i], [generator.standard_normal((d, d))], steps, p=p)
        for norm in norms:
            _solved(per_constraint, problems[i], _selected(problems[i], weights), norm)
    return {"seconds": np.array(time.perf_counter() - begin)}


def papers_way(name: str, sizes: Sizes, piece: Piece) -> float:
    """Seconds of a figure with the method of the papers."""
    parts: list[tuple[str, Callable[..., Arrays], tuple[Any, ...]]] = []
    if name in ("rank", "feasibility"):
        cells = [(n, T, d) for n, T in sizes["shapes"] for d in sizes["dims"]]
        parts = [(f"{cell}", _solve, (*cell, sizes["problems"], 0, name == "rank")) for cell in cells]
    elif name == "kinds":
        cells = [(n, T, d) for n, T in sizes["shapes"] for d in sizes["dims"]]
        parts = [(f"{cell}", _train, (*cell, sizes["runs"], sizes["steps"], 0, True)) for cell in cells]
    elif name == "saturation":
        steps = sizes["steps"]["W"]
        parts = [("all", _train, (sizes["n"], sizes["T"], sizes["d"], sizes["runs"], steps, 0, True))]
    elif name == "nonlinear-head":
        shape = sizes["n"], sizes["T"]
        parts = [(f"{d}", _nonlinear, (*shape, d, sizes["runs"], sizes["steps"], 0)) for d in sizes["dims"]]
    else:
        shape = sizes["n"], sizes["T"], sizes["d"]
        pairs = zip(sizes["p"], sizes["steps"], strict=True)
        parts = [(f"{p}", _mirror, (*shape, sizes["seeds"], steps, p, sizes["p"], 0)) for p, steps in pairs]
    return sum(float(piece(f"{name} {part}", function, *of_part)["seconds"]) for part, function, of_part in parts)


def our_way(name: str, sizes: Sizes) -> Arrays:
    """Seconds of a figure in attsvm, including compilation."""
    begin = time.perf_counter()
    FIGURES.find(name).measure(sizes, lambda _, function, *arguments: function(*arguments))
    return {"seconds": np.array(time.perf_counter() - begin)}


def shared_sizes(share: float) -> dict[str, Sizes]:
    """The figures' sizes with a share of the runs, and the published numbers of steps."""
    full = {figure.name: dict(figure.full) for figure in FIGURES}

    def part(count: int) -> int:
        return max(1, round(share * count))

    saturation = {"runs": part(100), "steps": {"W": 2000, "per factor": 2000, "jointly": 2000}}
    candidates = [part(count) for count in full["nonlinear-head"]["candidates"]]
    shares = {
        "rank": {"problems": part(100)},
        "saturation": saturation,
        "kinds": {"runs": part(500), "wide_dims": [50], "wide_problems": 1},
        "feasibility": {"problems": part(500)},
        "nonlinear-head": {"runs": part(500), "candidates": candidates},
        "bregman": {"seeds": part(100)},
    }
    # the second part of some figures, whose query is the first token, is left out on both sides
    return {
        name: full[name] | own | ({"queries": {"cross": {}}} if "queries" in full[name] else {})
        for name, own in shares.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("out/benchmark-reproduce"))
    arguments = parser.parse_args()
    # PyTorch is fastest with one thread on such small matrices
    torch.set_num_threads(1)
    store = PieceStore(arguments.out)
    print(f"{num_threads()} threads, torch {torch.__version__}, CVXPY {cp.__version__}")
    print(f"share of the runs: {arguments.share:g}\n")
    print(f"{'':16}{'papers':>12}{'attsvm':>10}{'ratio':>8}")
    totals = np.zeros(2)
    for name, sizes in shared_sizes(arguments.share).items():
        mine = float(store(f"ours {name}", our_way, name, sizes)["seconds"])
        theirs = papers_way(name, sizes, store)
        totals += theirs, mine
        print(f"{name:16}{theirs:10.1f} s{mine:8.1f} s{theirs / mine:7.1f}x", flush=True)
    print(f"{'together':16}{totals[0]:10.1f} s{totals[1]:8.1f} s{totals[0] / totals[1]:7.1f}x")
    print(f"all runs, method of the papers: about {totals[0] / arguments.share / 3600:.1f} hours")


if __name__ == "__main__":
    main()
