"""Options that several commands have."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm._utils.checks import check_integer
from attsvm.errors import ProblemError

OutFolder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, figures and results.")]
ForceFolder = Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier result.")]

OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the result to this `.npz` file.")]
ForceFile = Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Largest number of cores to use.  [default: all]")]

Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="`cpu`, `gpu`, `cuda` or `cuda:1`.  [default: a GPU, if any]"),
]

SplitSeed = Annotated[int, typer.Option("--seed", help="Seed of the split into training and test data.")]
TestFraction = Annotated[float, typer.Option(help="Share of each class to set apart for testing.")]

TokenizerName = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="NAME",
        help="How to split texts into words: `words`, `spaces`, `characters`, a function `package.module:name`, or a "
        "Hugging Face tokenizer.  [default: words]",
    ),
]

Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Encoding of the files, such as latin-1.  [default: utf-8]"),
]
Quoting = Annotated[
    str | None,
    typer.Option(
        "--quoting",
        metavar="NAME",
        help="How CSV and TSV files escape quotes inside quoted fields: `double` or `backslash`; `none` if quotes "
        "have no special meaning.  [default: double; none for TSV, unless both give the same rows]",
    ),
]

ProblemFile = Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem file `.npz`.")]


def named_option(of: str) -> Any:
    """An option ``--option NAME=VALUE``, which can be given several times; :func:`named_values` reads the values."""
    return typer.Option("--option", metavar="NAME=VALUE", help=f"Option of the {of}. Repeatable.")


def named_values(texts: Iterable[str], option: str = "--option", form: str = "NAME=VALUE") -> dict[str, str]:
    """Read the values of ``--option NAME=VALUE``, which can be given several times.

    Raises ProblemError if a text has no ``=``, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ProblemError(f"{option}: expected {form}, got {text!r}")
        if name in found:
            raise ProblemError(f"{option}: expected each name once, got {name} twice")
        found[name] = value
    return found


def option_values(texts: Iterable[str]) -> dict[str, Any]:
    """Booleans, numbers and strings from ``--option NAME=VALUE``."""
    return {name: _value(text) for name, text in named_values(texts).items()}


def _value(text: str) -> Any:
    """A boolean, None, a number, a tuple of numbers or a string."""
    words: dict[str, bool | None] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    readers: tuple[Callable[[str], Any], ...] = (int, float, lambda x: tuple(map(float, x.split(","))))
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    return text


def limit_threads(threads: int | None) -> None:
    """Limit the process to its first ``threads`` cores, before a thread pool starts."""
    if threads is None:
        return
    check_integer("--threads", threads, 1, 2**16)
    os.environ["ATTSVM_THREADS"] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(threads)
