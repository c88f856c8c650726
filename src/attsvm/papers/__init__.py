"""Figures and tables of the papers: measured again, and judged by a criterion each.

:ref:`Provisional <provisional>`: it may change in any minor version.
"""

from attsvm.papers.figure import Arrays, Figure, Paper, Piece, Row, Sizes, Standing, Verdict, verdict
from attsvm.papers.figures import FIGURES
from attsvm.papers.run import Outcome, chosen, run, write
from attsvm.papers.sizes import SizeKind, sizes_of

__all__ = [
    "FIGURES",
    "Arrays",
    "Figure",
    "Outcome",
    "Paper",
    "Piece",
    "Row",
    "SizeKind",
    "Sizes",
    "Standing",
    "Verdict",
    "chosen",
    "run",
    "sizes_of",
    "verdict",
    "write",
]


def __dir__() -> list[str]:
    return sorted(__all__)
