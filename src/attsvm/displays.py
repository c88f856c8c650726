"""How results and problems are shown: a plot for each kind, tables, and a summary in notebooks."""

import contextlib
from collections.abc import Iterable
from html import escape
from typing import Any, ClassVar

from attsvm._utils.extensions import Registry, import_object
from attsvm.errors import ProblemError

PLOTS: Registry[Any] = Registry("plot", group="attsvm.plots", package="attsvm.plot")
"""What draws each kind of object: a function of the object, of options, and of ``ax``."""


class Displayed:
    """What has a plot and a summary in notebooks.

    A module of :mod:`attsvm.plot` registers a drawing under a ``kind`` in :data:`PLOTS`.
    """

    kind: ClassVar[str]

    @classmethod
    def _kind(cls) -> str:
        return cls.kind

    def plot(self, *args: Any, ax: Any = None, **options: Any) -> Any:
        """Draw it with Matplotlib. The function of this kind in :mod:`attsvm.plot` lists the options.

        Parameters
        ----------
        *args, **options
            Of the function in :mod:`attsvm.plot`.
        ax : Axes or sequence of Axes, optional
            What to draw on; by default a new figure.

        Returns
        -------
        Axes, or ndarray of Axes

        Raises
        ------
        ProblemError
            If there is no plot of this kind.

        See Also
        --------
        attsvm.plot.compare, attsvm.plot.paths

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> axes = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).plot()
        """
        return PLOTS.find(self._kind())(self, *args, ax=ax, **options)

    def _rows(self) -> Iterable[tuple[str, str]]:
        """Names and values of the summary."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        cell = "text-align: left; padding: .15em .8em .15em 0; vertical-align: top"
        rows = "".join(
            f'<tr><th style="{cell}; font-weight: 400; opacity: .7">{escape(name)}</th>'
            f'<td style="{cell}">{escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        table = f'<table style="border-collapse: collapse; margin: 0"><caption style="{cell}">'
        table += f"<b>{escape(type(self).__name__)}</b></caption>{rows}</table>"
        small_figure: Any = import_object("attsvm.plot.canvas:small_figure")
        figure = ""
        if self._kind() in PLOTS:
            with contextlib.suppress(ProblemError):  # there may be nothing to draw
                figure = small_figure(self, self._kind())
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1.5em; align-items: center">{table}{figure}</div>'
