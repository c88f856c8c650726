"""Compare the time of `solve_svm` with that of another version, such as 0.1, on the same problems.

Each version runs in a process of its own. The two take turns, so that other programs affect both, and report processor
times of one thread.

    git worktree add ../attsvm-0.1 5a2a5a1
    python benchmarks/att_svm_versions.py ../attsvm-0.1/src [--rounds 20]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL, LARGE = (6, 8, 10), (50, 20, 64)
"""Sequences, tokens and dimensions."""

TOGETHER, ALONE = 500, 20
"""Problems in a batch, and problems that are solved one by one."""

CASES = {
    "frobenius, small, alone": ("frobenius", SMALL, ALONE, False),
    "nuclear, small, alone": ("nuclear", SMALL, ALONE, False),
    "spectral, small, alone": ("spectral", SMALL, ALONE, False),
    "nuclear, small, together": ("nuclear", SMALL, TOGETHER, True),
    "spectral, small, together": ("spectral", SMALL, TOGETHER, True),
    "nuclear, n=50 T=20 d=64": ("nuclear", LARGE, 1, False),
    "spectral, n=50 T=20 d=64": ("spectral", LARGE, 1, False),
}


def work(norm: str, size: tuple[int, int, int], number: int, together: bool) -> Callable[[], list[Any]]:
    """A function that solves the problems of a case."""
    import numpy as np

    import attsvm

    drawn = [attsvm.datasets.random_problem(*size, seed=seed) for seed in range(number)]
    tasks = [(problem.tokens, problem.queries, attsvm.optimal_tokens(problem)) for problem in drawn]
    if together:
        tasks = [tuple(np.stack(parts) for parts in zip(*tasks, strict=True))]
    problems = [(attsvm.Problem(tokens, queries=queries), selected) for tokens, queries, selected in tasks]
    return lambda: [attsvm.solve_svm(problem, selected, norm=norm) for problem, selected in problems]


def serve() -> None:
    """Solve each case that standard input names, and print the seconds for each problem and the largest gap."""
    import numpy as np

    known: dict[str, Callable[[], list[Any]]] = {}
    for line in sys.stdin:
        case = line.strip()
        if case not in known:
            known[case] = work(*CASES[case])
            known[case]()
        start = time.process_time()
        solutions = known[case]()
        seconds = (time.process_time() - start) / CASES[case][2]
        print(json.dumps([seconds, float(max(np.max(solution.gap) for solution in solutions))]), flush=True)


def started(source: Path) -> subprocess.Popen[str]:
    """A process that solves with the version at ``source``."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | one_thread | {"PYTHONPATH": str(source.resolve())},
    )


def asked(process: subprocess.Popen[str], case: str) -> tuple[float, float]:
    """Seconds and gap."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(case + "\n")
    process.stdin.flush()
    seconds, gap = json.loads(process.stdout.readline())
    return seconds, gap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="The folder src of the other version.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.source is None:
        parser.error("source: expected the folder src of another version")
    before, now = started(options.source), started(Path(__file__).parents[1] / "src")
    print(f"{'':28}{'before, ms':>12}{'now, ms':>12}{'ratio':>8}{'gap':>10}{'gap':>10}")
    for case in CASES:
        pairs = [(asked(before, case), asked(now, case)) for _ in range(options.rounds)]
        old, new = (min(seconds for seconds, _ in side) for side in zip(*pairs, strict=True))
        gaps = "".join(f"{gap:10.1e}" for _, gap in pairs[0])
        print(f"{case:28}{1e3 * old:12.3f}{1e3 * new:12.3f}{old / new:8.2f}{gaps}", flush=True)
    for process in (before, now):
        process.terminate()


if __name__ == "__main__":
    main()
