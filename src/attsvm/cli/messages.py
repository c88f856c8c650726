"""Messages of a command on stderr besides errors and warnings: how many, by ``--quiet`` and ``--verbose``."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer
from typer.models import OptionInfo

from attsvm._utils.progress import SECONDS_A_LINE, shown
from attsvm._utils.text import one_line, visible
from attsvm.cli.option_names import as_written
from attsvm.cli.options import limit_threads
from attsvm.errors import ProblemError


class Verbosity(IntEnum):
    """How much a command says: the least important messages of the log that are printed."""

    QUIET = logging.ERROR
    NORMAL = logging.WARNING
    VERBOSE = logging.DEBUG


_level = Verbosity.NORMAL


def is_verbose() -> bool:
    """Whether the running command says what it does."""
    return _level is Verbosity.VERBOSE


def say(line: str) -> None:
    """Print a line on stderr, unless the command is quiet."""
    if _level is not Verbosity.QUIET:
        print(one_line(line), file=sys.stderr)


@contextlib.contextmanager
def progress(name: str, callback: Callable[[Any], object]) -> Iterator[Callable[[Any], object]]:
    """Show the progress of the block, unless the command is quiet. It yields what shows it and calls the callback."""
    with shown(_level is not Verbosity.QUIET, name, callback, 1.0 if is_verbose() else SECONDS_A_LINE) as update:
        yield update or callback


def with_level(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """The function of a command with the options ``--quiet`` and ``--verbose``; its ``--threads`` limit the process.

    ``names``: the parameters that errors call otherwise, by their names there. Errors name options as they are written.
    """
    parameters = signature(function).parameters
    own = [*parameters.values()]
    named = {one.name: one for one in own if isinstance(one.annotation.__metadata__[0], OptionInfo)}
    named |= {name: parameters[of] for name, of in names.items()}

    @wraps(function)
    def call(*, quiet: bool, verbose: bool, **options: Any) -> Any:
        if quiet and verbose:
            raise ProblemError("--quiet, --verbose: cannot be used together")
        with _printed(Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL):
            limit_threads(options.get("threads"))
            try:
                return function(**options)
            except ProblemError as error:
                error.args = (as_written(str(error), named, options),)
                raise

    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", _Quiet), ("verbose", _Verbose))
    ]
    call.__signature__ = Signature([*own, *added])  # type: ignore[attr-defined]
    return call


_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result, warnings and errors.")]
_Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print details of the progress, and a traceback if there is an error.",
        show_default=False,
    ),
]


class _Visible(logging.Formatter):
    """Lines in which names of users control nothing."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


@contextlib.contextmanager
def _printed(chosen: Verbosity) -> Iterator[None]:
    """Print what belongs to a level, while a command runs."""
    global _level
    _level = chosen
    log = logging.getLogger("attsvm")
    log.setLevel(chosen)
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    if chosen is Verbosity.VERBOSE:
        log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
