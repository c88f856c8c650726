"""How a command ends: its exit status, and one line on stderr for an error or for a run that did not finish."""

import errno
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import typer

from attsvm._utils.extensions import did_you_mean
from attsvm._utils.interruption import is_interrupted
from attsvm._utils.text import one_line, visible
from attsvm.cli.messages import is_verbose
from attsvm.errors import ProblemError
from attsvm.results import Status

FAILED = 1
"""Exit status where a file cannot be read or written, or memory is exhausted."""

BAD_INPUT = 2
"""Exit status where an argument or a file is not what it should be."""

INCOMPLETE = 3
"""Exit status where the result is written, but a run or a solve in it did not end as requested."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, by the convention of shells."""

_WHY = {
    Status.STALLED: "the gradient is exactly zero, so training cannot continue",
    Status.NON_FINITE: "the next step would not be finite",
    Status.INACCURATE: "the duality gap or the violation exceeds the tolerance",
    Status.INTERRUPTED: "the result covers what was computed so far",
}

_UsageError: Any = typer.BadParameter.__base__  # Typer exports the subclass only


def run_command(app: Callable[..., Any]) -> NoReturn:
    """Run the command line, a Typer application, and end the process. An error gives one line on stderr."""
    warned: set[str] = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"attsvm: warning: {one_line(str(message))}"
        if line not in warned:  # several steps of a command meet the same data
            warned.add(line)
            print(line, file=sys.stderr)

    warnings.showwarning = warn
    try:
        ended = app(prog_name="attsvm", standalone_mode=False)
        sys.stdout.flush()
    except (_UsageError, ProblemError, OSError, MemoryError) as error:
        if is_interrupted():
            raise
        if is_verbose():
            print(visible(traceback.format_exc()), end="", file=sys.stderr)
        if message := one_line(_message(error)):
            print(f"attsvm: {message}", file=sys.stderr)
        _forget_output()
        sys.exit(FAILED if isinstance(error, OSError | MemoryError) else BAD_INPUT)
    sys.exit(ended if isinstance(ended, int) else 0)


def exit_status(statuses: Iterable[str] | Mapping[str, int], what: str) -> int:
    """The exit status of a command with such results, after a warning on stderr for each status that is no success.

    ``statuses``: the status of each result, or how many have it. ``what``: what has them, in the singular.
    """
    counts = Counter(statuses)
    ended = {status: counts[status] for status in Status if counts[status] and not status.is_success}
    for status, count in ended.items():
        some = f"the {what} is" if sum(counts.values()) == 1 else f"{count} of {sum(counts.values())} {what}s are"
        print(f"attsvm: warning: {some} {status}: {_WHY[status]}", file=sys.stderr)
    if Status.INTERRUPTED in ended:
        return INTERRUPTED
    return INCOMPLETE if ended else 0


def _message(error: Exception) -> str:
    if isinstance(error, _UsageError):
        context: Any = getattr(error, "ctx", None)
        said = (_bad_value(error) or _gone(error) or _unknown(error) or str(error.format_message())).rstrip(".")
        # without any argument the help has been printed, and there is nothing to say
        return said and f"{said}; see {context.command_path if context else 'attsvm'} --help".replace("?; see", "? See")
    if isinstance(error, MemoryError):
        return f"not enough memory ({error})" if str(error) else "not enough memory"
    if isinstance(error, OSError) and error.strerror:
        # every write of a file names it, so what has no name is the standard output
        unnamed = "standard output" if error.errno in _OF_WRITES else None
        name = error.filename or unnamed
        return f"{name}: {error.strerror}" if name else error.strerror
    return str(error)


def _bad_value(error: Any) -> str:
    """Describe a value that is not of its option's type, in place of pydantic's words; empty for other errors."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if not found or error.param is None:
        return ""
    first = found[0]
    wanted = _TYPES.get(first["type"].partition("_")[0])
    said = f"expected {wanted}, got {first['input']!r}" if wanted else first["msg"].removeprefix("Value error, ")
    return f"{error.param.get_error_hint()}: {said}".replace("'", "", 2)


def _unknown(error: Any) -> str:
    """Name the option that was meant in place of an unknown one; empty for other errors."""
    name, known = getattr(error, "option_name", ""), getattr(error, "possibilities", None) or ()
    meant = did_you_mean(name, known)
    return meant and f"No such option: {name}{meant}"


def _gone(error: Any) -> str:
    """Say what is written in place of an option that an earlier version had; empty for other errors."""
    command = error.ctx.info_name if error.ctx else ""
    name = getattr(error, "option_name", "")
    return f"{name}: no longer an option; use {_GONE[command, name]}" if (command, name) in _GONE else ""


_GONE = {
    ("fit", "--seeds"): "--draws",
    ("fit-text", "--p"): "--option p=VALUE",
    ("train", "--p"): "--option p=VALUE",
    ("train", "--growth"): "--option growth=VALUE",
    ("train", "--rank"): "--option rank=VALUE",
    ("train", "--margin-tol"): "--option margin_tol=VALUE",
    ("inspect", "--view"): "--head L.H --head all",
}

_TYPES = {"int": "an integer", "float": "a number"}

_OF_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def _forget_output() -> None:
    """Drop what is still to be written on stdout, if it cannot be: the interpreter would try again, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
