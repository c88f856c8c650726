"""Results: their status, and saving, loading, indexing and tables of what their fields declare."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from attsvm._utils.archives import read_npz, write_npz
from attsvm._utils.checks import check_flag
from attsvm._utils.displays import Displayed, summary_of
from attsvm._utils.extensions import trust
from attsvm._utils.extras import check_installed
from attsvm._utils.fields import (
    Declared,
    alternatives,
    check_fields,
    per_record,
    per_trial,
    role_of,
    shared,
    unsaved,
    words_of,
)
from attsvm._utils.files import reason
from attsvm.errors import ProblemError

__all__ = [
    "NOT_RECORDED",
    "Batched",
    "Result",
    "Status",
    "check_index",
    "per_record",
    "per_trial",
    "plain",
    "plain_status",
    "repeated",
    "shared",
    "unsaved",
]

NOT_RECORDED = "not recorded"
"""What fields hold in files of version 0.2, which lack what predictions depend on."""


class Status(StrEnum):
    """How a computation ended, in the same words for every result.

    =============== ==========================================================================================
    status          meaning
    =============== ==========================================================================================
    ``optimal``     Solve: the duality gap and the violation of the constraints are within their tolerances.
    ``inaccurate``  Solve: certified neither as optimal nor as infeasible; gap and violation say how close it is.
    ``infeasible``  Solve: multipliers prove that all feasible weights have a norm above 1e12, on rows of unit length.
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
        """Whether the computation did what was requested. "No solution exists" is also an answer."""
        return self in (Status.OPTIMAL, Status.INFEASIBLE, Status.CONVERGED, Status.FINISHED)


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
        return next(getattr(self, entry.name) for entry in fields(self) if role_of(entry) == "trial")

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the functions that a computation used, which a file does not hold, either."""
        return {name: None if name.startswith("live_") else value for name, value in self.__dict__.items()}

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
        # records move last, since NumPy puts the axes of several index arrays in front
        return self._mapped(
            lambda array: array[index], lambda records: np.moveaxis(np.moveaxis(records, 0, -1)[index], -1, 0)
        )

    def _mapped(self, of_trial: Callable[[Any], Any], of_record: Callable[[Any], Any]) -> Self:
        """Apply functions to every array per trial and per record, in dicts and in results inside this one, too.

        Entries of a dict without axes, and the steps of records, belong to all trials.
        """

        def changed(entry: Declared, value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, Batched):
                return value._mapped(of_trial, of_record)
            if role_of(entry) == "record":
                if isinstance(value, Mapping):
                    return {name: x if name == "steps" else of_record(x) for name, x in value.items()}
                return of_record(value)
            if isinstance(value, Mapping):
                return {name: plain(of_trial(np.asarray(x))) if np.ndim(x) else x for name, x in value.items()}
            return _single(of_trial(np.asarray(value)), words_of(entry.type))

        batched = [entry for entry in fields(self) if role_of(entry) in ("trial", "record")]
        return replace(self, **{entry.name: changed(entry, getattr(self, entry.name)) for entry in batched})

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
    def load(cls, path: str | os.PathLike[str], *, trusted: bool = False) -> Self:
        """Read a result that :meth:`save` wrote.

        Parameters
        ----------
        path : path
        trusted : bool
            Import the modules that the file names when they are needed, which runs their code: those of norms,
            optimisers and losses from outside of attsvm. Without it, what is not imported already is missing in the
            result, and what needs it says how to load the file.

        Raises
        ------
        ProblemError
            If the file cannot be read, or holds something else, or more than fits in memory.

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
        if check_flag("trusted", trusted):
            trust(meta)
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
        ProblemError
            If pandas is not installed.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, batch=(2,))
        >>> solutions = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> solutions.to_frame().status.to_list()
        ['optimal', 'optimal']
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        columns = {name: value for name, value in self._per_trial() if np.shape(value) == self.batch_shape}
        return pd.DataFrame({name: np.ravel(value) for name, value in columns.items()}, index=self._index(()))

    def to_xarray(self) -> Any:
        """All arrays as an xarray Dataset. Its dimensions are the batch axes, records, and the axes of each field.

        The records of a run are along ``step``, whose values are the recorded steps; ``last_step`` is its last one.

        Raises
        ------
        ProblemError
            If xarray is not installed.

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, batch=(2,))
        >>> solutions = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
        >>> solutions.to_xarray().direction.dims
        ('trial', 'direction_axis_0', 'direction_axis_1')
        """
        check_installed("to_xarray", "frames", "xarray")
        import xarray as xr

        batch = self._batch_names()
        records = list(self._per_record())
        axis = "step" if any(name == "steps" for _, name, _ in records) else "record"
        found = {"last_step" if name == axis else name: (batch, array) for name, array in self._per_trial()}
        for field_name, name, array in records:
            lead = (axis, *(() if name == "steps" else batch))
            found[name if name not in found else f"{field_name}_{name}"] = (lead, array)
        arrays = {name: (self._axis_names(name, lead, array), array) for name, (lead, array) in found.items()}
        counted = {axis: arrays.pop("steps")[1]} if axis == "step" else {}
        coordinates = {**counted, **{name: list(values) for name, values in self._coordinates().items()}}
        return xr.Dataset(arrays, coordinates, {"kind": self._kind(), **dict(self._words())})

    def _per_trial(self) -> Iterator[tuple[str, np.ndarray]]:
        """Names and arrays of the per-trial fields and of the entries of their dicts."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if role_of(entry) != "trial" or value is None or entry.name in self.hidden:
                continue
            if isinstance(value, Batched):
                yield from ((f"{entry.name}_{name}", inner) for name, inner in value._per_trial())
            elif isinstance(value, Mapping):
                yield from ((f"{entry.name}_{name}", np.asarray(x)) for name, x in value.items() if np.ndim(x))
            else:
                yield entry.name, np.asarray(value)

    def _per_record(self) -> Iterator[tuple[str, str, np.ndarray]]:
        """Fields, names and arrays of the records; ``steps`` counts them."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if role_of(entry) == "record" and value is not None:
                named = value if isinstance(value, Mapping) else {entry.name: value}
                yield from ((entry.name, name, records) for name, records in named.items())

    def _batch_names(self) -> tuple[str, ...]:
        number = len(self.batch_shape)
        return ("trial",) if number == 1 else tuple(f"trial_{i}" for i in range(number))

    def _axis_names(self, name: str, lead: tuple[str, ...], array: np.ndarray) -> tuple[str, ...]:
        """Names of the leading axes and of those behind them."""
        own = np.ndim(array) - len(lead)
        names = self._dimensions().get(name.removeprefix("history_"), ())[:own]
        return (*lead, *names, *(f"{name}_axis_{i}" for i in range(len(names), own)))

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

    def _words(self) -> Iterator[tuple[str, str | int | float]]:
        """Fields that all trials share, if they are words or numbers; of an object with a name, the name."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            value = getattr(value, "name", value) if not isinstance(value, str) else str(value)
            if role_of(entry) == "shared" and isinstance(value, str | int | float) and value != "":
                yield entry.name, value

    def _batch(self) -> str:
        """How many results there are, in words."""
        return f"{' × '.join(map(str, self.batch_shape))} {self.counted}".rstrip()

    def _rows(self) -> Iterator[tuple[str, str]]:
        """The summary in notebooks: numbers and words, and the shapes of arrays."""
        if self.batch_shape:
            yield "batch", self._batch()
        # arrays last
        for name, value in sorted(self._per_trial(), key=lambda pair: pair[1].shape != self.batch_shape):
            yield name.replace("_", " "), summary_of(value, self.batch_shape)
        yield from ((name.replace("_", " "), str(word)) for name, word in self._words())

    def __repr__(self) -> str:
        parts = [self._batch(), self._batch_summary(), self._counts()] if self.batch_shape else [self._summary()]
        return f"{type(self).__name__}({'; '.join(part for part in parts if part)})"

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
            value, role = getattr(self, entry.name), role_of(entry)
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
                meta[entry.name] = dict.fromkeys(value)  # a mapping can be empty
                numbers = ((name, np.nan if x is None else x) for name, x in value.items())
                arrays |= {f"{entry.name}/{name}": np.asarray(x) for name, x in numbers}
            else:
                arrays[entry.name] = np.asarray(value)
        return arrays, meta

    @classmethod
    def _read(cls, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> Self:
        given: dict[str, Any] = {}
        for entry in fields(cls):
            name, role = entry.name, role_of(entry)
            if role == "unsaved":
                continue
            if name in arrays:
                given[name] = _single(arrays[name], words_of(entry.type))
            elif meta.get(name, MISSING) is MISSING:
                if entry.default is MISSING and entry.default_factory is MISSING:
                    raise ProblemError(f"{name}: expected an array, got none")
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
                missing = [] if held else [key for key in meta[name] if key not in inside]
                if missing:
                    raise ProblemError(f"{name}: expected an array {missing[0]!r}, got none")
                given[name] = (
                    held._read(inside, meta[name]) if held else {key: plain(array) for key, array in inside.items()}
                )
        found = cls(**given)
        check_fields(found)
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
    """Return the same result for each of several trials: its arrays, broadcast to ``trials`` axes in front."""
    if not trials:
        return result
    return result._mapped(
        lambda array: np.broadcast_to(array, (*trials, *array.shape)),
        lambda records: np.broadcast_to(np.expand_dims(records, 1), (len(records), *trials, *records.shape[1:])),
    )


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
