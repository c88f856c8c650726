"""Measures of a sweep by name, one file each."""

from collections.abc import Callable
from typing import Any

from attsvm._utils.extensions import find_named, kind_check
from attsvm.errors import ProblemError
from attsvm.sweeps.arguments import read_function
from attsvm.sweeps.measure import Measure, OfFunction
from attsvm.sweeps.measures.all_support import AllSupport
from attsvm.sweeps.measures.direction_error import DirectionError
from attsvm.sweeps.measures.error import Error
from attsvm.sweeps.measures.feasible import Feasible
from attsvm.sweeps.measures.kind import KindOfConvergence
from attsvm.sweeps.measures.margin_ratio import MarginRatio
from attsvm.sweeps.measures.noise_selected import NoiseSelected
from attsvm.sweeps.measures.rank import Rank
from attsvm.sweeps.measures.support_count import SupportCount
from attsvm.sweeps.measures.training import Loss, Steps

MEASURES: dict[str, type[Measure]] = {
    measure.name: measure
    for measure in (
        AllSupport,
        DirectionError,
        Error,
        Feasible,
        KindOfConvergence,
        Loss,
        MarginRatio,
        NoiseSelected,
        Rank,
        Steps,
        SupportCount,
    )
}


def parse_measure(measure: "str | Measure | type[Measure] | Callable[..., Any]") -> Measure:
    """Read a measure: a name, ``NAME=ARGUMENTS``, the import path of a function, a function or a measure.

    Raises ProblemError if there is no such measure, or it has other arguments.
    """
    if isinstance(measure, str):
        name, equals, text = measure.partition("=")
        if ":" in name and not equals:
            return parse_measure(read_function(name))
        found = find_named("measure", MEASURES, name, kind_check(Measure))
        if equals:
            return (found if isinstance(found, type) else type(found)).from_text(text)
        return found() if isinstance(found, type) else found
    if isinstance(measure, Measure):
        return measure
    if isinstance(measure, type) and issubclass(measure, Measure):
        return measure()
    if callable(measure):
        return OfFunction(measure)
    raise ProblemError(f"measures: expected names, measures or functions, got {measure!r}")
