"""Results: their status, the fields that they declare, and saving, loading, indexing, plots and summaries."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import StrEnum
from html import escape
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from attsvm._utils.archives import read_npz, write_npz
from attsvm._utils.extensions import import_object
from attsvm._utils.field_checks import alternatives, check_fields, words_of
from attsvm._utils.files import reason
from attsvm.errors import ProblemError

PLOTS = {
    "inspection": "attsvm.plot.inspection:inspection",
    "margin profile": "attsvm.plot.profile:profile",
    "path": "attsvm.plot.path:regularization_path",
    "penalty path": "attsvm.plot.path:penalty_path",
    "prediction": "attsvm.plot.solution:prediction",
    "problem": "attsvm.plot.problem:problem",
    "run": "attsvm.plot.run:run",
    "solution": "attsvm.plot.solution:solution",
}
"""Where the plot of each kind of object is: a function of the object, of options, and of ``ax``."""


class Status(StrEnum):
    """How a computation ended; the same words for every result.

    =============== ==========================================================================================
    status          meaning
    =============== ==========================================================================================
    ``optimal``     Solve: the duality gap and the violation of the constraints are within their tolerances.
    ``inaccurate``  Solve: the answer is feasible, but its gap or violation exceeds the tolerance.
    ``infeasible``  Solve: multipliers prove that no weights satisfy the constraints.
    ``converged``   Iteration: a tolerance was met.
    ``finished``    Iteration: the requested number of steps was made.
    ``stalled``     Iteration: the gradient is exactly zero, so no further progress is possible.
    ``interrupted`` Iteration: stopped by Ctrl-C or by a callback; the result holds what was computed until then.
    ``non_finite``  Iteration: the next step would have left the finite numbers; the result is the last finite point.
    ``degenerate``  Derivative of a solve: the answer is optimal, but does not depend smoothly on the data.
    =============== ==========================================================================================

    See Also
    --------
    attsvm.Solution, attsvm.Run

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.solve_svm(problem, attsvm.optimal_tokens(problem)).status
    <Status.OPTIMAL: 'optimal'>
    >>> attsvm.Status("optimal") == "optimal"
    True
    """

    OPTIMAL = "optimal"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    CONVERGED = "converged"
    FINISHED = "finished"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    NON_FINITE = "non_finite"
    DEGENERATE = "degenerate"

    @property
    def is_success(self) -> bool:
        """Whether the computation did what was requested. A proof that there is no solution is an answer, too."""
        return self in (Status.OPTIMAL, Status.INFEASIBLE, Status.CONVERGED, Status.FINISHED)


_ROLE = "attsvm.role"


def per_trial(default: Any = MISSING) -> Any:
    """Declare a field with the batch axes in front: an array, a number, a dict of these, a :class:`Batched`, or None.

    Entries of a dict that have no axes, such as a string, belong to all trials. Without batch axes, a string is a
    member of the enumeration that the field declares.
    """
    return field(default=default, metadata={_ROLE: "trial"})


def per_record(default: Any = MISSING) -> Any:
    """Declare a field with an array, a dict of arrays, or None: axis 0 counts records and the batch axes follow.

    The entry ``"steps"`` of a dict has axis 0 only.
    """
    return field(default=default, metadata={_ROLE: "record"})


def shared(
    default: Any = MISSING, *, write: Callable[[Any], Any] | None = None, read: Callable[[Any], Any] | None = None
) -> Any:
    """Declare a field that is the same for all trials. ``write`` makes it JSON-able and ``read`` is its inverse."""
    return field(default=default, metadata={_ROLE: "shared", "write": write, "read": read})


def unsaved(default: Any = None) -> Any:
    """Declare a field that is not written to files; it is ``default`` after loading."""
    return field(default=default, metadata={_ROLE: "unsaved"})


class Displayed:
    """What has a plot and a summary in notebooks. The plot is that of its ``kind`` in :data:`PLOTS`."""

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
        if self._kind() not in PLOTS:
            raise ProblemError(f"plot: expected one of {', '.join(PLOTS)}, got {self._kind()!r}")
        draw: Any = import_object(PLOTS[self._kind()])
        return draw(self, *args, ax=ax, **options)

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
                figure = small_figure(self)
        return f'<div style="display: flex; flex-wrap: wrap; gap: 1.5em; align-items: center">{table}{figure}</div>'


@dataclass(frozen=True, eq=False, repr=False)
class Batched(Displayed):
    """A frozen dataclass whose arrays start with the batch axes.

    A subclass sets ``kind`` and ``schema`` and declares each field by :func:`per_trial`, :func:`per_record`,
    :func:`shared` or :func:`unsaved`. Saving, loading and indexing follow from these declarations; the batch shape is
    that of the first per-trial field.
    """

    kind: ClassVar[str]
    """What a file of this class holds."""

    schema: ClassVar[int] = 1
    """Version of the file format. It grows when a field is renamed or changes its meaning."""

    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of fields whose arrays have equal shapes, behind the axis of records. None counts for no shape."""

    counted: ClassVar[str] = ""
    """What the batch axes count, in the plural."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """Fields that tables and summaries leave out."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of every array: one entry for each trial or problem."""
        first = self._first()
        return first.batch_shape if isinstance(first, Batched) else np.shape(first)

    def _first(self) -> Any:
        return next(getattr(self, entry.name) for entry in fields(self) if _role(entry) == "trial")

    def __bool__(self) -> bool:
        """True: a result without batch axes has no length, and is not empty."""
        return True

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError(f"a {self._kind()} without batch axes has no length")
        return self.batch_shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Self:
        """The results at ``index`` of the batch axes.

        Raises
        ------
        TypeError, IndexError
            If the index does not fit the batch axes.
        """
        check_index(index, self.batch_shape, self._kind())
        changed: dict[str, Any] = {}
        for entry in fields(self):
            value, role = getattr(self, entry.name), _role(entry)
            if role == "trial":
                changed[entry.name] = _at(value, index, words_of(entry.type))
            elif role == "record" and value is not None:
                changed[entry.name] = (
                    {name: x if name == "steps" else _records_at(x, index) for name, x in value.items()}
                    if isinstance(value, Mapping)
                    else _records_at(value, index)
                )
        return replace(self, **changed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to an ``.npz`` file, without pickle.

        Raises
        ------
        OSError
            If the file cannot be written.
        TypeError
            If a field holds objects other than numbers, strings and booleans.

        See Also
        --------
        attsvm.Run, attsvm.Solution

        Examples
        --------
        >>> import attsvm, tempfile
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     solution.save(f"{folder}/solution.npz")
        ...     attsvm.Solution.load(f"{folder}/solution.npz").status
        <Status.OPTIMAL: 'optimal'>
        """
        arrays, meta = self._written()
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise TypeError(
                    f"{self._kind()}: {name}: expected numbers, strings or booleans, got an array of objects"
                )
        write_npz(path, self._kind(), arrays, {"schema": self.schema, **meta})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a result that :meth:`save` wrote.

        Raises
        ------
        ProblemError
            If the file cannot be read, or holds something else.

        Examples
        --------
        >>> import attsvm, tempfile
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     solution.save(f"{folder}/solution.npz")
        ...     bool((attsvm.Solution.load(f"{folder}/solution.npz").direction == solution.direction).all())
        True
        """
        arrays, meta = read_npz(path, cls._kind())
        schema = meta.get("schema", cls.schema)
        if isinstance(schema, int) and schema > cls.schema:
            raise ProblemError(
                f"{path}: expected a {cls._kind()} of schema {cls.schema} or lower, got schema {schema}; "
                "it was written by a newer version"
            )
        try:
            return cls._read(arrays, meta)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ProblemError(f"{path}: not a complete {cls._kind()} ({reason(error)})") from None

    def to_frame(self) -> Any:
        """The numbers and words of each trial as a pandas DataFrame, one row for each trial.

        The index counts the batch axes. Arrays of a trial are left out; :meth:`to_xarray` has them.

        Raises
        ------
        ImportError
            If pandas is not installed.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, batch=(2,))
        >>> solutions = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> solutions.to_frame().status.to_list()
        ['optimal', 'optimal']
        """
        import pandas as pd

        columns = {name: value for name, value in self._per_trial() if np.shape(value) == self.batch_shape}
        return pd.DataFrame({name: np.ravel(value) for name, value in columns.items()}, index=self._index(()))

    def to_xarray(self) -> Any:
        """All arrays as an xarray Dataset. Its dimensions are the batch axes, records, and the axes of each field.

        Raises
        ------
        ImportError
            If xarray is not installed.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, batch=(2,))
        >>> solutions = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> solutions.to_xarray().direction.dims
        ('trial', 'direction_axis_0', 'direction_axis_1')
        """
        import xarray as xr

        batch = self._batch_names()
        found = {name: (batch, value) for name, value in self._per_trial()}
        for entry in fields(self):
            records = getattr(self, entry.name)
            if _role(entry) == "record" and records is not None:
                inside = records if isinstance(records, Mapping) else {entry.name: records}
                lead = {name: ("record", *(() if name == "steps" else batch)) for name in inside}
                found |= {
                    name if name not in found else f"{entry.name}_{name}": (lead[name], value)
                    for name, value in inside.items()
                }
        arrays = {name: self._named(name, lead, value) for name, (lead, value) in found.items()}
        records = {"record": arrays.pop("steps")[1]} if "steps" in arrays else {}
        coordinates = {**records, **{name: list(values) for name, values in self._coordinates().items()}}
        return xr.Dataset(arrays, coordinates, {"kind": self._kind(), **dict(self._words())})

    def _per_trial(self) -> Iterator[tuple[str, Any]]:
        """Names and values of the per-trial fields and of the entries of their dicts."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if _role(entry) != "trial" or value is None or entry.name in self.hidden:
                continue
            if isinstance(value, Batched):
                yield from ((f"{entry.name}_{name}", inner) for name, inner in value._per_trial())
            elif isinstance(value, Mapping):
                yield from ((f"{entry.name}_{name}", inner) for name, inner in value.items() if np.ndim(inner))
            else:
                yield entry.name, value

    def _batch_names(self) -> tuple[str, ...]:
        number = len(self.batch_shape)
        return ("trial",) if number == 1 else tuple(f"trial_{i}" for i in range(number))

    def _index(self, lead: tuple[tuple[str, Any], ...]) -> Any:
        """The pandas index over values of leading axes and over the batch axes; None without any axis."""
        import pandas as pd

        names = [*(name for name, _ in lead), *self._batch_names()]
        levels = [*(values for _, values in lead), *(range(size) for size in self.batch_shape)]
        if len(names) <= 1:
            return pd.Index(levels[0], name=names[0]) if names else None
        return pd.MultiIndex.from_product(levels, names=names)

    def _dimensions(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the axes of fields behind the batch axes, for :meth:`to_xarray`; without a name, a number."""
        return {}

    def _coordinates(self) -> Mapping[str, Any]:
        """Values along named axes, for :meth:`to_xarray`."""
        return {}

    def _named(self, name: str, lead: tuple[str, ...], value: Any) -> tuple[tuple[str, ...], np.ndarray]:
        array = np.asarray(value)
        own = array.ndim - len(lead)
        names = self._dimensions().get(name.removeprefix("history_"), ())[:own]
        return (*lead, *names, *(f"{name}_axis_{i}" for i in range(len(names), own))), array

    def _words(self) -> Iterator[tuple[str, str | int | float]]:
        """Fields that all trials share, if they are words or numbers; of an object with a name, the name."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            value = getattr(value, "name", value) if not isinstance(value, str) else str(value)
            if _role(entry) == "shared" and isinstance(value, str | int | float) and value != "":
                yield entry.name, value

    def _rows(self) -> Iterator[tuple[str, str]]:
        """The summary in notebooks: numbers and words, and the shapes of arrays."""
        if self.batch_shape:
            yield "batch", f"{' × '.join(map(str, self.batch_shape))} {self.counted}".rstrip()
        values = [(name, np.asarray(value)) for name, value in self._per_trial()]
        # arrays last
        for name, value in sorted(values, key=lambda pair: pair[1].shape != self.batch_shape):
            yield name.replace("_", " "), _short(value, self.batch_shape)
        yield from ((name.replace("_", " "), str(word)) for name, word in self._words())

    def __repr__(self) -> str:
        name = type(self).__name__
        if not self.batch_shape:
            return f"{name}({self._summary()})"
        batch = f"{' × '.join(map(str, self.batch_shape))} {self.counted}".rstrip()
        return f"{name}({'; '.join(part for part in (batch, self._batch_summary(), self._counts()) if part)})"

    def _counts(self) -> str:
        """How often each status or kind occurs; empty if the first per-trial field holds no words."""
        first = self._first()
        if isinstance(first, Batched):
            return first._counts()
        words = np.asarray(first)
        if words.dtype.kind != "U":
            return ""
        found, counts = np.unique(words, return_counts=True)
        return ", ".join(f"{count} {word}" for word, count in zip(found, counts, strict=True))

    def _summary(self) -> str:
        """One line about a result without batch axes."""
        return str(self._first())

    def _batch_summary(self) -> str:
        """What a batch of results has in common, in a few words."""
        return ""

    def _written(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays: dict[str, np.ndarray] = {}
        meta: dict[str, Any] = {}
        for entry in fields(self):
            value, role = getattr(self, entry.name), _role(entry)
            if role == "shared":
                write = entry.metadata["write"]
                meta[entry.name] = _json(value if write is None or value is None else write(value))
            elif role not in ("trial", "record"):
                continue
            elif value is None:
                meta[entry.name] = None
            elif isinstance(value, Batched):
                inner, meta[entry.name] = value._written()
                arrays |= {f"{entry.name}/{name}": array for name, array in inner.items()}
            elif isinstance(value, Mapping):
                meta[entry.name] = {}  # a mapping can be empty
                arrays |= {f"{entry.name}/{name}": np.asarray(array) for name, array in value.items()}
            else:
                arrays[entry.name] = np.asarray(value)
        return arrays, meta

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Self:
        given: dict[str, Any] = {}
        for entry in fields(cls):
            name, role = entry.name, _role(entry)
            if role == "unsaved":
                continue
            if name in arrays:
                given[name] = _single(arrays[name], words_of(entry.type))
            elif meta.get(name, MISSING) is MISSING:
                if entry.default is MISSING and entry.default_factory is MISSING:
                    raise KeyError(name)
            elif meta[name] is None:
                given[name] = None
            elif role == "shared":
                read = entry.metadata["read"]
                given[name] = meta[name] if read is None else read(meta[name])
            elif not isinstance(meta[name], Mapping):
                raise ProblemError(f"{name}: expected arrays, got {type(meta[name]).__name__}")
            else:
                start = f"{name}/"
                inside = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
                held = _result_of(entry.type)
                given[name] = (
                    held._read(inside, meta[name]) if held else {key: plain(array) for key, array in inside.items()}
                )
        found = cls(**given)
        read = [(entry.name, _role(entry), getattr(found, entry.name), entry.type) for entry in fields(cls)]
        check_fields(read, found.batch_shape, cls.equal_shapes)
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Result(Batched):
    """Base of every result of a computation, which ends with a :class:`Status`.

    Attributes
    ----------
    status : Status, or ndarray of str, shape (*batch_shape,)
    """

    status: Status | np.ndarray = per_trial()


B = TypeVar("B", bound=Batched)


def repeated(result: B, trials: tuple[int, ...]) -> B:
    """The same result for each of several trials: its arrays, broadcast to ``trials`` axes in front."""
    if not trials:
        return result

    def spread(value: Any) -> Any:
        if isinstance(value, Batched):
            return repeated(value, trials)
        if isinstance(value, Mapping):
            return {name: spread(x) if np.ndim(x) else x for name, x in value.items()}
        return None if value is None else np.broadcast_to(np.asarray(value), (*trials, *np.shape(value)))

    own = {entry.name: getattr(result, entry.name) for entry in fields(result) if _role(entry) == "trial"}
    return replace(result, **{name: spread(value) for name, value in own.items()})


def plain(value: Any) -> Any:
    """A Python number or string in place of a 0-dimensional array; other values as they are."""
    return value.item() if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0 else value


def plain_status(status: np.ndarray) -> Status | np.ndarray:
    """A :class:`Status` in place of a 0-dimensional array of its name; other arrays as they are."""
    array = np.asarray(status)
    # a look-up takes a third of the time of Status(...)
    return _STATUSES[array.item()] if array.ndim == 0 else array


_STATUSES = {status.value: status for status in Status}


def check_index(index: Any, batch_shape: tuple[int, ...], kind: str) -> None:
    """Check that an index addresses batch axes only.

    Raises
    ------
    TypeError
        If there are no batch axes, or the index holds an Ellipsis or None.
    IndexError
        If the index is out of range or has too many axes.
    """
    if not batch_shape:
        raise TypeError(f"a {kind} without batch axes cannot be indexed")
    parts = index if isinstance(index, tuple) else (index,)
    if any(part is Ellipsis or part is None for part in parts):
        raise TypeError(f"a {kind} is indexed by integers, slices and arrays")
    np.broadcast_to(False, batch_shape)[index]


def _short(value: np.ndarray, batch_shape: tuple[int, ...]) -> str:
    """A number or a word; of a batch the median and the range, or the counts; of another array its shape."""
    if value.shape != batch_shape:
        return f"array of shape {value.shape}"
    if value.dtype.kind in "UO":
        words, counts = np.unique(value.astype(str), return_counts=True)
        return (
            str(value)
            if not batch_shape
            else ", ".join(f"{count} {word}" for word, count in zip(words, counts, strict=True))
        )
    if value.dtype.kind == "b":
        return f"{value.mean():.0%}" if batch_shape else ("yes" if value else "no")
    if not batch_shape:
        return f"{value.item():,}" if value.dtype.kind in "iu" else f"{value.item():.6g}"
    known = value[np.isfinite(value)]
    if not known.size:
        return "none"
    said = f"median {np.median(known):.6g} ({known.min():.6g} to {known.max():.6g})"
    return said if known.size == value.size else f"{said}; {value.size - known.size} without"


def _role(entry: "Field[Any]") -> str:
    if _ROLE not in entry.metadata:
        raise TypeError(f"{entry.name}: expected a field made by per_trial, per_record, shared or unsaved")
    return str(entry.metadata[_ROLE])


def _at(value: Any, index: Any, words: type[StrEnum] | None) -> Any:
    if value is None:
        return None
    if isinstance(value, Batched):
        return value[index]
    if isinstance(value, Mapping):
        return {name: plain(np.asarray(x)[index]) if np.ndim(x) else x for name, x in value.items()}
    return _single(np.asarray(value)[index], words)


def _records_at(records: np.ndarray, index: Any) -> np.ndarray:
    # records move last, since NumPy puts the axes of several index arrays in front
    return np.moveaxis(np.moveaxis(records, 0, -1)[index], -1, 0)


def _single(value: Any, words: type[StrEnum] | None) -> Any:
    """Return what a field holds without batch axes: a number, a member of ``words``, or the array itself."""
    found = plain(value)
    return words(found) if words and isinstance(found, str) else found


def _result_of(declared: Any) -> type[Batched] | None:
    """Return the class of result among the declared types, if there is one."""
    return next((x for x in alternatives(declared) if isinstance(x, type) and issubclass(x, Batched)), None)


def _json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_json(x) for x in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
