"""What the results of ``attsvm.fit`` share: numbers, a page, and a folder with both."""

import os
from typing import Any, ClassVar

from attsvm._utils.displays import Displayed
from attsvm.pages import claim_folder, make_page

COMMAND = "attsvm.fit"
"""The command that pages and numbers name if they are made in Python."""


class PageResult(Displayed):
    """A result that has a page, a folder and a summary in notebooks."""

    kind: ClassVar[str] = "fit"

    def __repr__(self) -> str:
        (_, ended), *accuracies = self._rows()
        return f"{type(self).__name__}({ended}; {', '.join(f'{name} {value}' for name, value in accuracies)})"

    def numbers(self, command: str = COMMAND, threads: int | None = None) -> dict[str, Any]:
        """Everything that was measured as JSON-able numbers, with None in place of NaN and infinity.

        The fields are those of ``attsvm fit --json``.

        Parameters
        ----------
        command : str
            What the result names as its command.
        threads : int, optional
            The limit on threads, if there was one.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(20, 4, 5, seed=0)
        >>> attsvm.fit(problem, steps=200).numbers()["training"]["attention"]
        'combined'
        """
        return make_page(self, command=command, threads=threads).numbers

    def page(self) -> str:
        """Make the page of ``attsvm fit``, as one HTML document.

        Returns
        -------
        str
            With all figures; it loads nothing. In a notebook ``IPython.display.HTML(found.page())`` shows it.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(20, 4, 5, seed=0)
        >>> "<title>problem: attention, fixed prediction head</title>" in attsvm.fit(problem, steps=200).page()
        True
        """
        return make_page(self, command=COMMAND).html()

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write what ``attsvm fit --out`` writes: ``index.html``, ``figures/``, ``result.json`` and what was fitted.

        A classifier is in ``model.npz``, for :func:`attsvm.load_model` and ``attsvm predict``; the run of a
        :class:`attsvm.Fit` is in ``run.npz``.

        Parameters
        ----------
        folder : path
            It is written completely or not at all.
        force : bool
            Replace a folder that holds an earlier result.

        Raises
        ------
        ProblemError
            If the folder exists and may not be replaced, or cannot be written.

        Examples
        --------
        >>> import attsvm, tempfile
        >>> problem = attsvm.datasets.random_problem(20, 4, 5, seed=0)
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     attsvm.fit(problem, steps=200).save(f"{parent}/result")
        ...     attsvm.Run.load(f"{parent}/result/run.npz").step
        200
        """
        with claim_folder(folder, force) as write:
            write(make_page(self, command=COMMAND).write)
