"""How figures distinguish several shapes (n, T)."""

from typing import Any

from attsvm.plot import style

GRID_LINES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.5}
    for colour, dashes, marker in (
        (style.BLUE, "-", "o"),
        (style.VERMILLION, "--", "s"),
        (style.GREEN, "-.", "^"),
        (style.PURPLE, (0, (4, 1, 1, 1, 1, 1)), "D"),
        (style.ORANGE, (0, (1, 1)), "v"),
    )
)


def label(n: int, T: int) -> str:
    """The name of a line."""
    return f"n = {n}, T = {T}"
