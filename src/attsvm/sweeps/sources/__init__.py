"""Sources of the problems of a sweep, one file each: a new source is one new file, here or outside the package.

A source is a function ``draw(generators, *, ...)`` that returns a :class:`~attsvm.Problem` with one batch axis, or a
:class:`attsvm.sweeps.Drawn`. It draws trial i from ``generators[i]`` alone.
"""

from collections.abc import Callable
from typing import Any

from attsvm._utils.extensions import Registry

SOURCES: Registry[Callable[..., Any]] = Registry(
    "source", group="attsvm.sweep_sources", package="attsvm.sweeps.sources"
)
