"""The heads that are known by name, and how ``head=`` is read."""

from attsvm._utils.extensions import Registry, kind_check
from attsvm.errors import ProblemError
from attsvm.heads.base import Head

HEADS: Registry[type[Head] | Head] = Registry(
    "head", group="attsvm.heads", package="attsvm.heads", check=kind_check(Head)
)


def parse_head(head: str | Head) -> Head:
    """Read a head.

    Parameters
    ----------
    head : str or Head
        A registered name, an import path ``package.module:name``, or a head, which is returned as it is.

    Raises
    ------
    ProblemError
        If there is no such head, or a class is given whose arguments are not known.

    See Also
    --------
    attsvm.heads.Head, attsvm.heads.HEADS

    Examples
    --------
    >>> from attsvm.heads import parse_head
    >>> parse_head("linear")
    Linear()
    """
    if isinstance(head, str):
        found = HEADS.find(head)
        if isinstance(found, Head):
            return found
        try:
            return found()
        except TypeError as error:
            raise ProblemError(
                f"head: {head} needs arguments; pass an object, in Python or as package.module:name ({error})"
            ) from None
    if isinstance(head, type) and issubclass(head, Head):
        raise ProblemError(f"head: expected a Head, got the class {head.__name__}; pass {head.__name__}(...)")
    if not isinstance(head, Head):
        raise ProblemError(f"head: expected a Head or one of {', '.join(HEADS.names())}, got {head!r}")
    return head
