"""The maps that are known by name, and how ``map=`` is read."""

from attsvm._utils.extensions import Registry
from attsvm.errors import ProblemError
from attsvm.training.maps.base import AttentionMap


def _map(found: object) -> AttentionMap:
    if isinstance(found, type) and issubclass(found, AttentionMap):
        found = found()
    if not isinstance(found, AttentionMap):
        raise ProblemError(f"expected an AttentionMap, got {type(found).__name__}")
    return found


MAPS: Registry[AttentionMap] = Registry("map", group="attsvm.maps", package="attsvm.training.maps", check=_map)


def parse_map(name: object) -> AttentionMap:
    """Read a map from logits to attention.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    name : str
        A registered name, or an import path ``package.module:name``.

    Raises
    ------
    ProblemError
        If there is no such map.

    See Also
    --------
    attsvm.training.AttentionMap, attsvm.training.MAPS

    Examples
    --------
    >>> from attsvm.training import parse_map
    >>> parse_map("entmax1.5").one_hot_margin
    2.0
    """
    if not isinstance(name, str):
        raise ProblemError(f"map: expected a name, {', '.join(MAPS.names())} or package.module:name, got {name!r}")
    return MAPS.find(name)
