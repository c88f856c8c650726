"""What a page shows of a figure."""

from typing import NamedTuple

from matplotlib.figure import Figure


class Drawn(NamedTuple):
    """A figure with its title and its caption.

    Attributes
    ----------
    name : str
        Name of its file, without the suffix.
    title, caption : str
    figure : matplotlib.figure.Figure
    """

    name: str
    title: str
    caption: str
    figure: Figure
