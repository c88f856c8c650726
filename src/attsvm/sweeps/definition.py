"""The definition of a sweep: grid, trials and measures. The result does not depend on where it is computed."""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attsvm._utils.checks import check_integer, check_seed
from attsvm.errors import ProblemError
from attsvm.optimizers import optimizer_options
from attsvm.svm import solve_svm
from attsvm.sweeps.block import Arguments
from attsvm.sweeps.description import described
from attsvm.sweeps.measure import Output, check_names
from attsvm.sweeps.measures import parse_measure
from attsvm.sweeps.sources import find_source
from attsvm.training import train

MOST_BLOCK = 256
"""Trials of a block by default: enough for the speed of batches, few enough for small memory."""

LANES = 8
"""Numbers of a vector register. A block is a multiple of it."""

_NOT_TRAIN = {"problem", "callback", "progress", "seed", "optimizer", "learning_rate", "device", "map"}
_NOT_SVM = {"problem", "selected", "required", "center", "relaxed", "slack", "warm_start", "callback", "progress"}


@dataclass(frozen=True)
class Definition:
    """A grid of cells, a number of trials in each, and what is measured in a trial.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The trials of a cell are divided into blocks. A block is always computed as a whole, in one batch of one size, so
    its bits do not depend on where and when it is computed. Trials of the last block beyond ``trials`` are computed and
    dropped.

    Parameters
    ----------
    grid : mapping of str to sequence
        Values by the name of an argument of the data source, of :func:`attsvm.train`, of the optimiser, or of
        :func:`attsvm.solve_svm`. Where several have it, it is written ``train.rank`` or ``svm.rank``.
    measures : sequence of str, Measure or callable
        Names, ``NAME=ARGUMENTS``, import paths, measures, or functions (problem, run) -> dict of arrays with one number
        for each trial.
    trials : int
        In each cell.
    data : str or callable
        A data source: a name of ``attsvm sweep --list``, or a function ``draw(generators, *, ...)``. It gets a list of
        ``numpy.random.Generator``, one for each trial, and by keyword those arguments of the grid and of ``fixed`` that
        it has. It returns a :class:`attsvm.Problem` with one batch axis, the trials, or a :class:`attsvm.sweeps.Drawn`,
        and draws trial i from ``generators[i]`` alone.
    fixed : mapping of str to object
        Arguments that are the same in all cells.
    seed : int
        Trial t of cell c is drawn from ``np.random.SeedSequence(seed, spawn_key=(c, t))``.
    block : int, optional
        Trials that are computed in one batch, a multiple of 8. By default the trials, divided evenly into blocks of at
        most 256.
    name, summary : str
        Of a ready sweep.

    See Also
    --------
    attsvm.sweep

    Examples
    --------
    >>> from attsvm.sweeps import Definition
    >>> definition = Definition({"num_tokens": [2, 3], "dim": [2, 4, 8]}, ["feasible"], trials=10)
    >>> definition.data, definition.trials, definition.block
    ('random', 10, 16)

    A function as the source of the problems:

    >>> import attsvm, tempfile
    >>> def draw(generators, *, dim=2):
    ...     tokens = np.stack([generator.standard_normal((3, 4, dim)) for generator in generators])
    ...     labels, heads = np.ones(tokens.shape[:2]), np.ones((len(tokens), dim))
    ...     return attsvm.Problem(tokens, labels=labels, head=heads, queries=tokens[:, :, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = {"data": draw, "trials": 40, "store": f"{folder}/own", "workers": 0}
    ...     found = attsvm.sweep({"dim": [1, 2]}, ["feasible"], **options)
    ...     found.feasible.mean("trial").values
    array([0.225, 0.925])
    """

    grid: Mapping[str, Sequence[Any]]
    measures: Sequence[Any]
    trials: int = 100
    data: str | Callable[..., Any] = "random"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    block: int | None = None
    name: str = ""
    summary: str = ""

    def __post_init__(self) -> None:
        check_integer("trials", self.trials, 1)
        check_seed(self.seed)
        block = self.block
        if block is None:
            blocks = -(-self.trials // MOST_BLOCK)
            block = -(-self.trials // (blocks * LANES)) * LANES
        if check_integer("block", block, LANES) % LANES:
            raise ProblemError(f"block: expected a multiple of {LANES}, got {block}")
        object.__setattr__(self, "block", block)
        for name, values in self.grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
                raise ProblemError(f"{name}: expected a sequence of values, got {values!r}")
            if name in self.fixed:
                raise ProblemError(f"{name}: expected in the grid or among the fixed arguments, not in both")
        object.__setattr__(self, "measures", tuple(parse_measure(each) for each in self.measures))
        if not self.measures:
            raise ProblemError("measures: expected at least one")
        names = [measure.name for measure in self.measures]
        if len(set(names)) < len(names):
            raise ProblemError(f"measures: expected different names, got {', '.join(names)}")
        check_names(self.names)
        for cell in (0, self.num_cells - 1):
            self.arguments(cell)
        self.described()

    @property
    def width(self) -> int:
        """The trials of a block."""
        assert self.block is not None
        return self.block

    @cached_property
    def declared(self) -> dict[str, Output]:
        """The outputs that the measures declare, by name."""
        return {name: output for measure in self.measures for name, output in measure.declared().items()}

    @property
    def names(self) -> list[str]:
        """The names of the grid, and of the outputs that measures declare and their axes."""
        names = [name for measure in self.measures for name in measure.declared()]  # twice, if two have one name
        axes = {axis for output in self.declared.values() for axis in output.axes}
        return [*self.grid, *names, *sorted(axes)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each axis of the grid."""
        return tuple(len(values) for values in self.grid.values())

    @property
    def num_cells(self) -> int:
        """The number of cells of the grid."""
        return math.prod(self.shape)

    @property
    def num_blocks(self) -> int:
        """The blocks of a cell."""
        return -(-self.trials // self.width)

    def place(self, cell: int) -> tuple[int, ...]:
        """The indices of a cell in the grid."""
        return tuple(int(i) for i in np.unravel_index(cell, self.shape)) if self.shape else ()

    def values(self, cell: int) -> dict[str, Any]:
        """The values of the grid in a cell."""
        return {name: values[i] for (name, values), i in zip(self.grid.items(), self.place(cell), strict=True)}

    @cached_property
    def _group_of(self) -> Callable[[str], tuple[str, str]]:
        given = {name.removeprefix("train."): value for name, value in {**self.grid, **self.fixed}.items()}
        optimizers = given.get("optimizer", ())
        listed = "optimizer" in self.grid or "train.optimizer" in self.grid
        return group_of(self.data, tuple(optimizers) if listed else (optimizers,) if optimizers != () else ())

    def arguments(self, cell: int) -> Arguments:
        """The arguments of a cell, by what they are passed to."""
        found: dict[str, dict[str, Any]] = {"data": {}, "train": {}, "svm": {}, "optimizer": {}}
        for name, value in {**self.fixed, **self.values(cell)}.items():
            group, own = self._group_of(name)
            found[group][own] = value
        return Arguments(**found)

    def generators(self, cell: int, first: int) -> list[np.random.Generator]:
        """The generators of the trials of a block."""
        return [self.generator(cell, trial) for trial in range(first, first + self.width)]

    def generator(self, cell: int, trial: int) -> np.random.Generator:
        """The generator of a trial."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(cell, trial)))

    def training_seed(self, cell: int, first: int) -> int:
        """The seed of the mini-batches of a block."""
        return int(np.random.SeedSequence(self.seed, spawn_key=(cell, first, 1)).generate_state(1)[0])

    def described(self) -> dict[str, Any]:
        """The definition as JSON."""
        return {
            "data": described(self.data, "data"),
            "grid": {name: described(list(values), name) for name, values in self.grid.items()},
            "fixed": {name: described(value, name) for name, value in sorted(self.fixed.items())},
            "measures": [measure.described() for measure in self.measures],
            "trials": self.trials,
            "seed": self.seed,
            "block": self.width,
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the definition."""
        text = json.dumps(self.described(), sort_keys=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def changed(self, **changes: Any) -> "Definition":
        """The definition with other fields. The block is adapted to a new number of trials unless it is given."""
        return replace(self, **{**({"block": None} if "trials" in changes else {}), **changes})


def group_of(data: str | Callable[..., Any], optimizers: tuple[Any, ...]) -> Callable[[str], tuple[str, str]]:
    """The function from the name of an argument to its group and its own name.

    ``optimizers``: all optimisers of the sweep. An option has to be one of each. Options without any are those of the
    default.

    Raises ProblemError from the function: if no group has such an argument, or several groups have and the name has no
    prefix.
    """
    optimizers = optimizers or ("normalized_gradient_descent",)
    named = [optimizer for optimizer in optimizers if isinstance(optimizer, str)]
    options = [set(optimizer_options(name)) for name in named] if len(named) == len(optimizers) else []
    known = {
        "data": set(inspect.signature(find_source(data)).parameters) - {"generators"},
        "train": set(inspect.signature(train).parameters) - _NOT_TRAIN | {"optimizer"},
        "svm": set(inspect.signature(solve_svm).parameters) - _NOT_SVM,
        "optimizer": set.intersection(*options) if options else set(),
    }

    def place(name: str) -> tuple[str, str]:
        group, _, own = name.rpartition(".")
        found = [each for each in known if (own in known[each]) and group in ("", each)]
        if len(found) == 1:
            return found[0], own
        if found:
            raise ProblemError(f"{name}: expected one of {', '.join(f'{each}.{own}' for each in found)}, got {name!r}")
        listed = "; ".join(f"{each}: {', '.join(sorted(names))}" for each, names in known.items() if names)
        others = "" if options else "; those of an optimiser that is given by name"
        raise ProblemError(f"grid: expected arguments of the sweep ({listed}{others}), got {name!r}")

    return place
