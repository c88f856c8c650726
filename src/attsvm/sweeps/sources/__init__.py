"""Sources of the problems of a sweep by name, one file each.

A source is a function ``draw(generators, *, ...)`` that returns a :class:`~attsvm.Problem` with one batch axis, or a
:class:`attsvm.sweeps.Drawn`. It draws trial i from ``generators[i]`` alone.
"""

from collections.abc import Callable
from typing import Any

from attsvm.sweeps.sources import noise, random

SOURCES: dict[str, Callable[..., Any]] = {"noise": noise.draw, "random": random.draw}
