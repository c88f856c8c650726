"""The built-in figures and tables, one file each, and the registry of all figures."""

from attsvm._utils.extensions import Registry
from attsvm.papers.figure import Figure, checked_figure

FIGURES: Registry[Figure] = Registry(
    "figure", group="attsvm.figures", package="attsvm.papers.figures", check=checked_figure
)
"""Every figure by its name. A module of this package registers its figure at its end."""
