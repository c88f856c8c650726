"""attsvm side by side with its peers: solvers, bags, optimisers, heads and texts, each on the same work in one run.

    python benchmarks/peers.py [solvers bags optimizers heads texts] [--quick] [--repetitions 5]
        [--out out/peers] [--data ../shared/data]

The peers are optional; a line names what is not installed, and the table has no rows of it. Cases are measured in
processes of their own, with one thread, and kept in a file of JSON lines for each part; a later call goes on. Methods
of one case take turns. Seconds are processor time. A cell is the mean over repetitions ± half the width of Student's
95 % interval. Repetitions differ in their problems, splits or seeds. A cell of a peer has ▲ or ▼ if its interval is on
the better or on the worse side of the intervals of all rows of attsvm on the same data.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from attsvm.statistics import student_half_width
from cases import Case, markdown, measured

PARTS = ("solvers", "bags", "optimizers", "heads", "texts")
SECONDS = 3600.0
"""The limit of one case, on the clock of a machine that may be busy."""


@dataclass
class Run:
    """What the parts share: the options, and how they measure and print."""

    part: str
    quick: bool
    out: Path
    data: Path
    repetitions: int

    def installed(self, methods: dict[str, str]) -> list[str]:
        """The methods whose packages, the names after pip install, are installed; says which are not."""
        found = []
        for method, packages in methods.items():
            missing = [one for one in packages.split() if not _is_installed(one)]
            if missing:
                print(f"{method} is left out: pip install {' '.join(missing)}", flush=True)
            else:
                found.append(method)
        return found

    def rows(self, cases: list[Case]) -> list[Case]:
        """The rows of cases, each with its case; says which cases failed."""
        cases = [{"part": self.part, "quick": self.quick, **case} for case in cases]
        found = []
        for one in measured(__file__, cases, self.out / f"{self.part}.jsonl", SECONDS, threads=1):
            if "error" in one:
                print(f"failed: {one['case']}: {one['error']}", flush=True)
            found += [{**one["case"], **row} for row in one.get("rows", [])]
        return found

    def table(self, rows: list[Case], columns: "Iterable[Column]") -> None:
        """Print the table of rows with the keys data and method; the methods of attsvm have ``ours``."""
        columns, lines = list(columns), []
        for data in dict.fromkeys(row["data"] for row in rows):
            groups: dict[str, list[Case]] = {}
            for row in rows:
                if row["data"] == data:
                    groups.setdefault(row["method"], []).append(row)
            ours = [group for group in groups.values() if group[0].get("ours")]
            lines += [
                [data, method, *(column.cell(group, ours) for column in columns)] for method, group in groups.items()
            ]
        print(markdown(["data", "method", *(column.name for column in columns)], lines), end="\n\n", flush=True)


@dataclass
class Column:
    """A column of a table; ``better`` is 1 if larger numbers are better, and -1 if smaller ones are."""

    name: str
    key: str
    form: str = ".3g"
    better: int = 0
    worst: bool = False
    """Whether the cell is the largest number, without an interval."""

    def cell(self, group: list[Case], ours: list[list[Case]]) -> str:
        """The mean with its interval, and the mark."""
        values = self._values(group)
        if not len(values):
            return "–"
        if self.worst:
            return f"{values.max():.0e}"
        mean, half = values.mean(), float(student_half_width(values))
        interval = f" ± {half:{'.2g' if self.form.endswith('g') else self.form}}" if np.isfinite(half) else ""
        return f"{mean:{self.form}}{interval}{self._mark(group, ours)}"

    def _values(self, group: list[Case]) -> np.ndarray:
        return np.array([row[self.key] for row in group if row.get(self.key) is not None], dtype=float)

    def _mark(self, group: list[Case], ours: list[list[Case]]) -> str:
        others = [self._interval(one) for one in ours if len(self._values(one))]
        if not self.better or group[0].get("ours") or not others:
            return ""
        low, high = self._interval(group)
        if all(low > other for _, other in others):
            return " ▲" if self.better > 0 else " ▼"
        if all(high < other for other, _ in others):
            return " ▼" if self.better > 0 else " ▲"
        return ""

    def _interval(self, group: list[Case]) -> tuple[float, float]:
        values = self._values(group)
        half = float(student_half_width(values))
        return float(values.mean()) - half, float(values.mean()) + half


def with_ratio(rows: list[Case], key: str = "seconds") -> list[Case]:
    """Rows with the ratio of their seconds to those of the first row of the same data and repetition."""
    units: dict[tuple[str, int], float] = {}
    for row in rows:
        units.setdefault((row["data"], row["rep"]), row[key])
    return [{**row, "ratio": row[key] / units[row["data"], row["rep"]]} for row in rows]


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; default all")
    parser.add_argument("--quick", action="store_true", help="few sizes, and two repetitions")
    parser.add_argument("--repetitions", type=int, default=5, help="of each case; default 5")
    parser.add_argument("--out", type=Path, default=Path("out/peers"), help="folder of the measured cases")
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared/data", help="folder with mil/ and imdb/"
    )
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        warnings.simplefilter("ignore")
        rows = list(import_module(f"peers_{options.case['part']}").measure(options.case))
        print("\n" + json.dumps({"rows": rows, "load": round(os.getloadavg()[0], 1)}))
        return
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"PART: expected some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        print(f"## {part}\n", flush=True)
        repetitions = min(2, options.repetitions) if options.quick else options.repetitions
        run = Run(part, options.quick, options.out.resolve(), options.data.resolve(), repetitions)
        try:
            import_module(f"peers_{part}").report(run)
        except ModuleNotFoundError as error:
            print(f"{part} are left out: pip install {error.name}", flush=True)


if __name__ == "__main__":
    # the parts import this module by its name
    sys.modules["peers"] = sys.modules["__main__"]
    main()
