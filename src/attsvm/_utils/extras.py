"""Packages that an extra of attsvm installs: one error for those that are missing."""

from importlib.util import find_spec

from attsvm.errors import ProblemError


def check_installed(what: str, extra: str, *packages: str) -> None:
    """Check that the packages that something needs are installed; they are not imported.

    Raises ProblemError, which names the command that installs them, if one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ProblemError(f"{what} needs {missing[0]}: pip install 'attsvm[{extra}]'")
