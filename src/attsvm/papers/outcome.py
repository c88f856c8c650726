"""Figures from their names to drawings, numbers and verdicts."""

import contextlib
import json
import shlex
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Drawing

from attsvm._utils.files import atomic_write, cannot_be_written, file_to_write, make_folder
from attsvm._utils.jax_devices import find_device, name_of, on_device
from attsvm._utils.outputs import check_folder, check_holds_files
from attsvm._utils.text import visible
from attsvm.errors import ProblemError
from attsvm.pages import make_page
from attsvm.papers.figure import Arrays, Figure, Row, Standing, Verdict, checked_figure, place
from attsvm.papers.figures import FIGURES
from attsvm.papers.pieces import PieceStore
from attsvm.papers.sizes import SizeKind, sizes_of
from attsvm.plot import style

PIECES = "pieces"
"""The folder of finished pieces; it shows that a folder is one of ``attsvm reproduce``."""
ENDINGS = ("png", "svg", "json")


@dataclass(frozen=True)
class Outcome:
    """The measurement of a figure, its verdict and its drawing.

    Attributes
    ----------
    figure : Figure
    spelling : str
        What the command line calls the figure: its name, or ``package.module:NAME``.
    quick : bool
        Whether the sizes are the quick ones.
    sizes : dict
    arrays : dict of ndarray
        Of :meth:`Figure.measure`.
    verdict : Verdict
    rows : list of Row
    drawing : matplotlib.figure.Figure
    seconds : float
        Wall time of the measurement.
    pieces, reused : int
        Pieces of the measurement, and how many of them were read from files of an earlier run.
    given : Mapping
        The sizes that were given in place of those of the figure.
    device : str
        Where it was trained.

    See Also
    --------
    attsvm.papers.run : Makes one.
    attsvm.papers.write

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from attsvm.papers import run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcome = run("feasibility", Path(folder), quick=True)
    >>> outcome.figure.name, outcome.rows[0].name
    ('feasibility', 'n = 5, T = 5: all problems feasible')
    """

    figure: Figure
    spelling: str
    quick: bool
    sizes: dict[str, Any]
    arrays: Arrays
    verdict: Verdict
    rows: list[Row]
    drawing: Drawing
    seconds: float
    pieces: int
    reused: int
    given: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def kind(self) -> SizeKind:
        """Whose sizes the run has."""
        return _kind(self.quick, self.given)

    @property
    def standing(self) -> str:
        """The verdict in words. A criterion is met or not; a claim is judged at full size."""
        standing = self.verdict.standing
        return standing.value if self.kind is SizeKind.FULL else f"{self.kind.prefix}: {_CRITERION[standing]}"

    @property
    def command(self) -> str:
        """The command that makes this figure alone."""
        sizes = "".join(f" --size {shlex.quote(f'{name}={_text(value)}')}" for name, value in self.given.items())
        device = "" if self.device == "cpu" else f" --device {self.device}"
        return f"attsvm reproduce {self.spelling}{' --quick' * self.quick}{sizes}{device}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_CRITERION = {
    Standing.HOLDS: "criterion met",
    Standing.IN_PART: "criterion met in part",
    Standing.FAILS: "criterion not met",
}


def _kind(quick: bool, given: Mapping[str, Any]) -> SizeKind:
    return SizeKind.OWN if given else SizeKind.QUICK if quick else SizeKind.FULL


def chosen(names: Iterable[str]) -> dict[str, Figure]:
    """The figures of these names, in the order of the page, by what the command line calls them.

    Parameters
    ----------
    names : iterable of str
        Names of ``FIGURES``, import paths ``package.module:NAME``, or ``all`` for every one in ``FIGURES``.

    Raises
    ------
    ProblemError
        If a name is not known, or two different figures have the same name.

    See Also
    --------
    attsvm.papers.run, attsvm.papers.FIGURES

    Examples
    --------
    >>> from attsvm.papers import chosen
    >>> list(chosen(["losses", "rank"]))
    ['losses', 'rank']
    """
    figures: dict[str, Figure] = {}
    for name in names:
        figures |= dict(FIGURES.items()) if name == "all" else {name: FIGURES.find(name)}
    ordered = dict(sorted(figures.items(), key=lambda entry: place(entry[1])))
    known: dict[str, Figure] = {}
    for spelling, figure in list(ordered.items()):
        if known.setdefault(figure.name, figure) is figure:
            continue
        if type(known[figure.name]) is not type(figure):
            raise ProblemError(f"{spelling}: the name {figure.name!r} is taken by another figure")
        del ordered[spelling]
    return ordered


def prepare(out: Path, figures: Iterable[Figure]) -> None:
    """Create the folder of the results, or take one that is empty or holds pieces of an earlier run.

    Raises ProblemError if ``out`` is anything else, if one of the files cannot be replaced, or if it is not writable.
    """
    check_folder(out)
    pieces = out / PIECES
    if out.is_dir() and any(out.iterdir()) and not pieces.is_dir():
        raise ProblemError(f"{out}: expected an empty folder or one of attsvm reproduce, got one without {PIECES}")
    for name in ["index.html", *(f"{figure.name}.{ending}" for figure in figures for ending in ENDINGS)]:
        file_to_write(out / name)
    with cannot_be_written(out):
        make_folder(pieces)
    check_holds_files(pieces, out)


def run(
    figure: Figure | type[Figure] | str,
    out: Path,
    *,
    quick: bool = False,
    sizes: Mapping[str, Any] | None = None,
    spelling: str | None = None,
    device: str | None = None,
    progress: Callable[[str, bool], object] | None = None,
) -> Outcome:
    """Measure, judge and draw one figure.

    Parameters
    ----------
    figure : Figure, subclass of Figure, or str
        A string is a name or an import path as in ``FIGURES.find``.
    out : Path
        Folder of finished pieces (``pieces/``). :func:`write` writes the drawing and the numbers.
    quick : bool
        Use the small sizes.
    sizes : Mapping, optional
        Sizes in place of those of the figure, as in :func:`sizes_of`.
    spelling : str, optional
        What the command line calls the figure; its name if not given.
    device : str, optional
        Where it is trained, as for :func:`attsvm.train`.
    progress : callable, optional
        Called as ``progress(piece, reused)`` after each piece.

    Raises
    ------
    ProblemError
        If the figure is not known or not complete, or has no such sizes, or there is no such device.

    See Also
    --------
    attsvm.papers.write, attsvm.papers.chosen

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from attsvm.papers import run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outcome = run("feasibility", Path(folder), quick=True)
    >>> outcome.verdict.standing.value
    'holds'
    """
    if isinstance(figure, str):
        spelling, figure = figure, FIGURES.find(figure)
    figure = checked_figure(figure)
    given = sizes or {}
    used = sizes_of(figure, quick, given)
    home = find_device(device)
    reuses: list[bool] = []

    def counted(name: str, reused: bool) -> None:
        reuses.append(reused)
        if progress is not None:
            progress(name, reused)

    begun = time.perf_counter()
    folder = Path(out) / PIECES / _kind(quick, given) / figure.name
    with _explained(figure, given), on_device(home):
        arrays = figure.measure(used, PieceStore(folder, counted, of=type(figure)))
    seconds = time.perf_counter() - begun
    with _explained(figure, given):
        verdict, rows = figure.judge(used, arrays), list(figure.rows(used, arrays))
    return Outcome(
        figure=figure,
        spelling=spelling or figure.name,
        quick=quick,
        sizes=used,
        arrays=arrays,
        verdict=verdict,
        rows=rows,
        drawing=_drawing(figure, used, arrays),
        seconds=seconds,
        pieces=len(reuses),
        reused=sum(reuses),
        given=dict(given),
        device=name_of(home),
    )


@contextlib.contextmanager
def _explained(figure: Figure, given: Mapping[str, Any]) -> Iterator[None]:
    """Name the sizes that were given in an error of a figure: it may need lists of equal lengths, for instance."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        if not given or isinstance(error, ProblemError):
            raise
        names = ", ".join(given)
        raise ProblemError(f"{figure.name}: cannot be measured at these sizes ({names}): {error}") from error


def _drawing(figure: Figure, sizes: dict[str, Any], arrays: Arrays) -> Drawing:
    """The drawing of a figure, or a note in its place: a drawing that fails does not discard what was measured."""
    with style.applied():
        try:
            return figure.draw(sizes, arrays)
        except Exception as error:  # the code of a figure may fail in any way
            why = visible(f"{figure.name} could not be drawn ({type(error).__name__}: {error})")
            warnings.warn(why, RuntimeWarning, stacklevel=3)
            note = Drawing(figsize=(6.0, 1.0))
            note.text(0.5, 0.5, why, ha="center", va="center", wrap=True, parse_math=False)
            return note


def write(outcome: Outcome, out: Path, command: str) -> None:
    """Write ``<name>.png``, ``<name>.svg`` and ``<name>.json`` to ``out``, each completely or not at all.

    See Also
    --------
    attsvm.papers.run

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from attsvm.papers import run, write
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(run("feasibility", Path(folder), quick=True), Path(folder), "attsvm reproduce feasibility --quick")
    ...     sorted(path.name for path in Path(folder).glob("feasibility.*"))
    ['feasibility.json', 'feasibility.png', 'feasibility.svg']
    """
    style.lay_out(outcome.drawing)
    contents = (
        style.to_png(outcome.drawing),
        style.to_svg_file(outcome.drawing),
        make_page(outcome, command=command).json().encode(),
    )
    out.mkdir(parents=True, exist_ok=True)
    for ending, content in zip(ENDINGS, contents, strict=True):
        with atomic_write(out / f"{outcome.figure.name}.{ending}") as stream:
            stream.write(content)
