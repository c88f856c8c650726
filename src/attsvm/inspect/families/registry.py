"""The families that are known by name."""

from attsvm._utils.extensions import Registry
from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family


def _family(found: object) -> Family:
    if isinstance(found, Family):
        return found
    if isinstance(found, type) and issubclass(found, Family):
        try:
            return found()
        except TypeError as error:  # it needs arguments, or an abstract method is not implemented
            raise ProblemError(f"{found.__name__} cannot be created ({error})") from None
    raise ProblemError(f"expected a Family or a subclass of it, got {type(found).__name__}")


FAMILIES: Registry[Family] = Registry(
    "family", group="attsvm.families", package="attsvm.inspect.families", check=_family
)


def find_family(family: "str | Family | type[Family]") -> Family:
    """Read a family.

    Parameters
    ----------
    family : str, Family or subclass of Family
        A name of :data:`FAMILIES` in any case, an import path ``package.module:name``, or a family, which is returned
        as it is. A class is created without arguments.

    Raises
    ------
    ProblemError
        If it names no family.

    Examples
    --------
    >>> from attsvm.inspect.families import find_family
    >>> find_family("gpt-2").name
    'GPT-2'
    """
    if not isinstance(family, str):
        try:
            return _family(family)
        except ProblemError as error:
            raise ProblemError(f"family: {error}") from None
    names = {name.lower(): name for name in FAMILIES.names()}
    return FAMILIES.find(names.get(family.lower(), family))
