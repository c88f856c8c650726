"""Cases of a benchmark, each measured in a process of its own, and kept in a file so that a later call resumes."""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Case = dict[str, Any]
LATE = "took more than"


def peak_bytes() -> int:
    """The largest memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(script: str, cases: list[Case], results: Path, limit: float, threads: int) -> list[dict[str, Any]]:
    """The results of cases; a case that fails or takes too long is a result with an error.

    Those in the file are not measured again, except the cases that failed.
    """
    known = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    kept = [row for row in known if row.get("error", LATE).startswith(LATE)]
    done = {json.dumps(row["case"], sort_keys=True): row for row in kept}
    found = []
    for case in cases:
        key = json.dumps(case, sort_keys=True)
        if key not in done:
            done[key] = {"case": case, **_in_process(script, key, limit, threads)}
            with results.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
            print(done[key], file=sys.stderr, flush=True)
        found.append(done[key])
    return found


def _in_process(script: str, case: str, limit: float, threads: int) -> dict[str, Any]:
    environment = os.environ | {"ATTSVM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    try:
        ended = subprocess.run(
            [sys.executable, script, "--case", case],
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"{LATE} {limit:g} s"}
    if ended.returncode:
        return {"error": (ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"])[-1]}
    row: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return row


def run(script: str, description: str | None, parser: argparse.ArgumentParser, measure: Callable[[Case], Any]) -> Any:
    """The options of a script of cases. In the process of one case, measure it, print the result and end."""
    parser.description = (description or "").splitlines()[0]
    name = Path(script).stem
    parser.add_argument("--results", type=Path, default=Path(f"{name}.jsonl"), help="file of measured cases")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of one case")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(options.case)))
        raise SystemExit
    return options


def slope(curve: list[tuple[int, float]]) -> float:
    """That of a straight line through all points of a curve in logarithmic axes."""
    sizes, times = np.log(np.array(curve)).T
    return float(np.polyfit(sizes, times, 1)[0])


def markdown(columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown; the first column is text, the others are numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
