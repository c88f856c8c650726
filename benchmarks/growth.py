"""Curves of a time as one size grows and the others stay fixed: measured, as a table with slopes, and as a figure."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from attsvm.plot import style
from cases import markdown

Curve = list[tuple[int, float]]
Look = tuple[str, Any, str]
"""Colour, dashes and marker of a kind."""

NAMES = {"n": "sequences $n$", "T": "tokens $T$", "d": "dimension $d$", "trials": "trials together"}


def curves(
    kinds: Iterable[str],
    base: Mapping[str, int],
    grown: Mapping[str, Iterable[int]],
    seconds: Callable[[str, dict[str, int]], float],
) -> dict[str, dict[str, Curve]]:
    """The seconds of each kind, for each size that grows; a line is printed for each curve."""
    found: dict[str, dict[str, Curve]] = {}
    for kind in kinds:
        found[kind] = {}
        for name, values in grown.items():
            curve = [(value, seconds(kind, {**base, name: value})) for value in values]
            found[kind][name] = curve
            print(f"{kind:28}{name:7}" + ", ".join(f"{size} {1e6 * spent:.3g} us" for size, spent in curve), flush=True)
    return found


def slope(curve: Curve) -> float:
    """That of a straight line through all points in logarithmic axes."""
    sizes, times = np.log(np.array(curve)).T
    return float(np.polyfit(sizes, times, 1)[0])


def table(found: Mapping[str, dict[str, Curve]], first: str, what: str, unit: float) -> str:
    """A row for each kind: the time at the base size, in units of a second, and the slopes."""
    grown = next(iter(found.values()))
    rows = [
        [kind, f"{by_size['n'][0][1] / unit:.3g}", *(f"{slope(by_size[name]):.2f}" for name in grown)]
        for kind, by_size in found.items()
    ]
    return markdown([first, what, *(f"in {name}" for name in grown)], rows)


def drawn(found: Mapping[str, dict[str, Curve]], looks: Mapping[str, Look], label: str, unit: float) -> Figure:
    """One panel for each size, with a curve for each kind."""
    grown = next(iter(found.values()))
    figure = Figure(figsize=(2 * style.WIDTH, 2.5))
    panels = figure.subplots(1, len(grown), sharey=True)
    for axis, name in zip(panels, grown, strict=True):
        for kind, (colour, line, marker) in looks.items():
            sizes, times = np.array(found[kind][name]).T
            axis.loglog(sizes, times / unit, color=colour, linestyle=line, marker=marker, markersize=3, label=kind)
        axis.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel(NAMES[name])
    panels[0].set_ylabel(label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(looks))
    return figure


def arguments(description: str | None, out: str) -> argparse.Namespace:
    """Repeats, and where the figure is written."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser.parse_args()


def write(figure: Figure, out: Path) -> None:
    """Write a figure as PNG."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with style.applied():
        out.write_bytes(style.to_png(figure))
