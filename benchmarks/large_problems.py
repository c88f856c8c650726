"""Time and memory of training and of Att-SVM solves against n, T, d and the number of trials, for large problems.

    python benchmarks/large_problems.py --gib 20          # up to the largest sizes that fit in 20 GiB
    python benchmarks/large_problems.py --gib 0.2         # a few minutes

Each size is measured in a process of its own. The results are kept in a file, and a later call with more memory
continues. A step is one of normalised gradient descent on W; a solve is that of the Frobenius Att-SVM to a gap of 1e-6.
All trials share the tokens. The exponents are slopes of straight lines in logarithmic axes through the last three sizes
of each curve. Peak memory is that of the process, less that of the same process on the smallest size.
"""

import argparse
import sys
import time
from typing import Any

import numpy as np

from cases import Case, markdown, measured, peak_bytes, run, slope
from timing import seconds_of_step

BASE = {"n": 64, "T": 64, "d": 64, "trials": 1}
GROWTH = 2
KINDS = {"step": ("n", "T", "d", "trials"), "solve": ("n", "T", "d")}
GIB = 2**30
ARRAYS_OF_LOGITS = 16
ARRAYS_OF_TOKENS = 2.2


def sizes_of(case: Case) -> tuple[int, int, int]:
    """Bytes of the tokens, and of the logits and the weights of all trials."""
    n, T, d, trials = (case[name] for name in ("n", "T", "d", "trials"))
    return 8 * n * T * d, 8 * n * T * trials, 8 * d * d * trials


def ladder(kind: str, gib: float) -> list[Case]:
    """The sizes from the base on, one axis at a time, up to a limit of memory."""
    found = [{"kind": kind, **BASE}]
    for axis in KINDS[kind]:
        case = {"kind": kind, **BASE}
        while True:
            case = case | {axis: GROWTH * case[axis]}
            tokens, logits, weights = sizes_of(case)
            if ARRAYS_OF_TOKENS * tokens + ARRAYS_OF_LOGITS * (logits + weights) > gib * GIB:
                break
            found.append(case)
    return found


def measure(case: Case) -> dict[str, Any]:
    """One size, in this process."""
    import attsvm

    n, T, d, trials = (case[name] for name in ("n", "T", "d", "trials"))
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((n, T, d))
    head = rng.standard_normal(d)
    problem = attsvm.Problem(tokens, rng.choice([-1, 1], n), tokens[:, 0], head)
    tokens_bytes = tokens.nbytes
    del tokens
    before = peak_bytes()
    if case["kind"] == "step":
        init = 0.01 * rng.standard_normal((trials, d, d))
        seconds = seconds_of_step(lambda steps: attsvm.train(problem, init=init, steps=steps, record=[steps]))
        status = ""
    else:
        began = time.perf_counter()
        status = str(attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), tol=1e-6).status)
        seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "status": status,
        "peak": peak_bytes(),
        "grown": peak_bytes() - before,
        "tokens": tokens_bytes,
    }


def report(rows: list[dict[str, Any]]) -> None:
    """Print a table of all sizes, and the exponents."""
    table, exponents = [], []
    for row in rows:
        case = row["case"]
        tokens, logits, _ = sizes_of(case)
        size = [case["kind"], *(f"{case[name]:,}" for name in BASE)]
        numbers = (
            [row["error"], "", "", ""]
            if "error" in row
            else [
                f"{row['seconds']:.3g} s {row['status']}".strip(),
                f"{row['peak'] / GIB:.3f}",
                f"{tokens / GIB:.3f}",
                f"{logits / GIB:.3f}",
            ]
        )
        table.append([*size, *numbers])
    print(markdown(["", *BASE, "time", "peak GiB", "tokens GiB", "logits GiB"], table))
    for kind, axes in KINDS.items():
        slopes = [kind]
        for axis in ("n", "T", "d", "trials"):
            curve = [
                (row["case"][axis], row["seconds"])
                for row in rows
                if row["case"]["kind"] == kind
                and "error" not in row
                and all(row["case"][name] == BASE[name] for name in BASE if name != axis)
            ][-3:]
            slopes.append(f"{slope(curve):.2f}" if axis in axes and len(curve) > 1 else "")
        exponents.append(slopes)
    print("\n" + markdown(["exponents of the time", "in n", "in T", "in d", "in trials"], exponents))


def main() -> None:
    """Measure the sizes that are not known yet, and print all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=20.0, help="estimated memory of the largest size")
    options = run(__file__, __doc__, parser, measure)
    cases = [case for kind in KINDS for case in ladder(kind, options.gib)]
    print(f"{len(cases)} sizes, {options.threads} threads", file=sys.stderr)
    report(measured(__file__, cases, options.results, options.seconds, options.threads))


if __name__ == "__main__":
    main()
