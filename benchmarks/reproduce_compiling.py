"""The share of compilation in the processor time of ``attsvm reproduce``, with an empty and a filled cache.

Each figure is measured in a process of its own, twice, with a folder of programs that is empty the first time.
Compilation is all the time of ``attsvm.compiling``: tracing, lowering, and compiling or reading a program. What a
figure compiles by itself is counted as computation. Importing is not counted. The figures have the sizes of
``--quick``; with ``--full``, those of the papers, whose programs make more steps.

    python benchmarks/reproduce_compiling.py [--full] [FIGURE ...]
"""

import argparse
import os
import subprocess
import sys
import tempfile

MEASURED = """
import sys, time
from pathlib import Path
import attsvm.training.engine.program as engine
from attsvm import compiling
from attsvm.reproduce import run

original, spent = compiling.compiled, 0.0

def timed(*arguments):
    global spent
    begin = time.process_time()
    try:
        return original(*arguments)
    finally:
        spent += time.process_time() - begin

compiling.compiled = engine.compiled = timed
begin = time.process_time()
run(sys.argv[1], Path(sys.argv[2]), quick=sys.argv[3] == "quick")
print(time.process_time() - begin, spent)
"""


def seconds(figure: str, cache: str, size: str) -> tuple[float, float]:
    """Processor seconds of a figure, and those of compilation."""
    settings = {"ATTSVM_CACHE": "on", "ATTSVM_CACHE_DIR": cache}
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-c", MEASURED, figure, out, size]
        printed = subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True).stdout
    total, compiling = map(float, printed.split()[-2:])
    return total, compiling


def main() -> None:
    from attsvm.reproduce import FIGURES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    parser.add_argument("--full", action="store_true", help="the sizes of the papers")
    arguments = parser.parse_args()
    size = "full" if arguments.full else "quick"
    names = arguments.figures or [figure.name for figure in FIGURES]
    columns = f"{'empty cache':>12}{'compiling':>12}{'filled cache':>14}{'compiling':>12}{'share':>8}"
    print(f"{'processor seconds':<28}{columns}")
    sums = [0.0] * 4
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            found = [*seconds(name, cache, size), *seconds(name, cache, size)]
        sums = [a + b for a, b in zip(sums, found, strict=True)]
        show(name, found)
    show("together", sums)


def show(name: str, found: list[float]) -> None:
    """One row."""
    cold, compiling, warm, reading = found
    print(f"{name:<28}{cold:12.1f}{compiling:12.1f}{warm:14.1f}{reading:12.1f}{reading / warm:8.0%}", flush=True)


if __name__ == "__main__":
    main()
