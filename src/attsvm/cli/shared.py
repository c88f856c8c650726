"""Parts of several commands: show progress, claim the folder of a result, write its page."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attsvm._utils.interruption import check_interrupted, keeping_steps, on_interruption
from attsvm.cli import messages

if TYPE_CHECKING:
    from attsvm.pages import Page

    Write = Callable[[Callable[[Path], object]], None]


def command_line() -> str:
    """The command that is running, for results and captions."""
    return shlex.join(["attsvm", *sys.argv[1:]])


def announce(out: Path | None) -> None:
    """Say of ``--out``, when the command is interrupted, whether it is complete."""
    from attsvm._utils.files import is_finished

    if out is not None:
        nothing = f"nothing was written to {out}; run the command again"
        on_interruption(lambda: f"{out} is complete" if is_finished(out) else nothing)


@contextlib.contextmanager
def result_folder(out: Path | None, force: bool, inputs: Iterable[object] = ()) -> "Iterator[Write | None]":
    """Claim the folder of ``--out``. Yield what writes it, at the end or again and again; None without ``--out``."""
    from attsvm.pages import claim_folder

    with claim_folder(out, force, inputs) if out else contextlib.nullcontext() as write:
        announce(out)
        yield write


def write_page(write: "Write | None", result: Any, **about: Any) -> "Page":
    """Make the page of a result, write it with what :func:`result_folder` yields, and return it.

    ``about``: arguments of :func:`attsvm.pages.make_page`, which gets the command, too.
    """
    from attsvm.pages import make_page

    page = make_page(result, command=command_line(), **about)
    if write is not None:
        write(page.write)
    return page


@contextlib.contextmanager
def progress(name: str = "training", *, stops: bool = False) -> Iterator[Callable[[Any], object]]:
    """Show progress on stderr, and yield the callback that updates it.

    If it ``stops``, Ctrl-C ends the loop that calls it, and the command writes the result of the steps that were made.
    """
    with keeping_steps(stops), messages.progress(name, lambda _: check_interrupted()) as update:
        yield update


def finish(out: Path | None, written: str, exit_status: int = 0) -> None:
    """Say on stderr what was written to ``--out``, and end the command if its exit status is not 0."""
    if out is not None:
        messages.say(f"{out}: {written}")
    if exit_status:
        raise typer.Exit(exit_status)
