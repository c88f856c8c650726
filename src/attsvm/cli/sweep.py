"""``attsvm sweep``: grids of trials on all cores or a cluster."""

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.interruption import on_interruption
from attsvm._utils.progress import counted, duration
from attsvm.cli import completion
from attsvm.cli.messages import say
from attsvm.cli.options import Device, Json
from attsvm.cli.shared import command_line, progress
from attsvm.errors import ProblemError
from attsvm.pages.terminal import columns_table

if TYPE_CHECKING:
    from attsvm.sweeps import Definition, SweepProgress

SCHEMA, ESTIMATE_SCHEMA = "attsvm.sweep/1", "attsvm.sweep_estimate/1"

HELP = """
NAME is a ready sweep of `attsvm sweep --list`, or `package.module:NAME`. Without it, the sweep is described by `--grid`
and `--measure`. With it, `--grid` replaces its grid, `--set` adds to its fixed arguments, and so on. The result is an
xarray dataset in the folder of `--out`. The same command continues an interrupted sweep.

Examples:

    attsvm sweep --list

    attsvm sweep phase-feasible --out out/feasible

    attsvm sweep phase-global --grid dim=2,4,8 --trials 200 --out out/small --dry-run

    attsvm sweep --grid dim=2,6,10 --grid learning_rate=0.03,0.1 --set optimizer=normalized_gradient_descent --measure kind --measure margin_ratio=frobenius,nuclear --out out/own

    attsvm sweep phase-global --out /shared/phase --scheduler tcp://10.0.0.1:8786
"""  # noqa: E501  # a command is one line


def sweep(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=completion.SWEEPS, help="A ready sweep.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the ready sweeps, the measures and sources.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="STORE", help="Folder of the result.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=VALUES",
            help="An axis; values divided by commas, norms also by semicolons, as in 'norm=l2,1;nuclear'.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An argument of all cells.")
    ] = None,
    measure: Annotated[
        list[str] | None, typer.Option("--measure", help="A measure, or package.module:function. Norms as for --grid.")
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="Source of the problems.  [default: random]")] = None,
    trials: Annotated[int | None, typer.Option("--trials", help="Trials of each cell.  [default: 100]")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of all trials.  [default: 0]")] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", help="Most steps of a trial that is undecided before.")
    ] = None,
    block: Annotated[int | None, typer.Option("--block", help="Trials of a batch.")] = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="Trials that are committed together.")] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Worker processes; 0 computes in this one.  [default: all cores; 0 on a GPU]"),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="A running Dask scheduler.")
    ] = None,
    device: Device = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of trials, and estimates of time and disk space.")
    ] = False,
    json: Json = False,
) -> None:
    """Run a sweep (the help is HELP)."""
    if list_all:
        _list()
        return
    from attsvm.sweeps.sweep import chunk_size, define, sweep

    definition = _definition(
        define,
        name,
        grid or [],
        fixed or [],
        {"measures": measure, "data": data, "trials": trials, "seed": seed, "budget": budget, "block": block},
    )
    if dry_run:
        _show_estimate(definition, chunk_size(definition, chunk), workers, device, json)
        return
    if out is None:
        raise ProblemError("--out: expected the folder of the result, got none")
    on_interruption(lambda: f"finished chunks are kept in {out}, run the command again to go on")
    with progress("sweep") as callback:
        found = sweep(
            definition,
            store=out,
            workers=workers,
            scheduler=scheduler,
            chunk=chunk,
            device=device,
            callback=_with_dashboard(callback),
            command=command_line(),
        )
    _finish(found, out, json)


def _with_dashboard(callback: Callable[[Any], object]) -> "Callable[[SweepProgress], object]":
    """The callback, which first says where the dashboard of Dask is."""
    said = False

    def update(at: "SweepProgress") -> object:
        nonlocal said
        if at.dashboard and not said:
            say(f"dashboard: {at.dashboard}")
            said = True
        return callback(at)

    return update


def _definition(define: Any, name: str | None, grid: list[str], fixed: list[str], options: dict[str, Any]) -> Any:
    given = {key: value for key, value in options.items() if value is not None}
    axes = {key: [_value(text) for text in _divided(key, values)] for key, values in _pairs("--grid", grid)}
    arguments = {key: _value(text) for key, text in _pairs("--set", fixed)}
    if name is None:
        if not axes or not given.get("measures"):
            raise ProblemError("NAME: expected a sweep of `attsvm sweep --list`, or --grid and --measure, got neither")
        return define(axes, given.pop("measures"), fixed=arguments, **given)
    definition = define(name)
    if axes:
        given["grid"] = axes
    if arguments:
        given["fixed"] = {**definition.fixed, **arguments}
    return definition.changed(**given) if given else definition


def _pairs(option: str, texts: list[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise ProblemError(f"{option}: expected NAME=VALUE, got {text!r}")
        pairs.append((key.replace("-", "_"), value))
    twice = [key for key, number in Counter(key for key, _ in pairs).items() if number > 1]
    if twice:
        raise ProblemError(f"{option}: expected each name once, got {twice[0]} twice; values are divided by commas")
    return pairs


def _divided(key: str, values: str) -> list[str]:
    """The texts of the values of an axis; the name of a norm may have a comma."""
    from attsvm.norms.registry import norms_in

    return norms_in(values) if key.rpartition(".")[2] == "norm" else values.split(",")


def _value(text: str) -> Any:
    """A number, True, False, None, or the text itself."""
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _finish(found: Any, out: Path, json: bool) -> None:
    from json import loads

    from attsvm.pages.plain import command_result, dumps

    errors = loads(found.attrs["errors"])
    if json:
        variables = {
            name: {"dims": list(array.dims), "shape": list(array.shape), "attributes": dict(array.attrs)}
            for name, array in found.data_vars.items()
        }
        numbers = {"store": str(out), "attributes": dict(found.attrs), "variables": variables}
        print(dumps(command_result(SCHEMA, command_line(), numbers)))
    else:
        measured = ", ".join(sorted(set(map(str, found.data_vars)) - {"done"}))
        done = found["done"].values
        print(f"{out}: {done.sum():,} of {counted(done.size, 'trial')} in {counted(_cells(found), 'cell')}: {measured}")
    for error in errors:
        cell = ", ".join(f"{key} = {value}" for key, value in error["cell"].items())
        first, stop = error["trials"]
        print(f"attsvm: warning: {cell}: trials {first} to {stop - 1} failed: {error['error']}", file=sys.stderr)
    if errors:
        from attsvm.cli.exits import INCOMPLETE

        raise typer.Exit(INCOMPLETE)


def _cells(found: Any) -> int:
    return int(found["done"].isel(trial=0).size)


def _show_estimate(definition: "Definition", chunk: int, workers: int | None, device: str | None, json: bool) -> None:
    from attsvm.pages.plain import command_result, dumps
    from attsvm.sweeps.estimate import estimate

    found = estimate(definition, chunk, workers, device)
    if json:
        print(dumps(command_result(ESTIMATE_SCHEMA, command_line(), vars(found))))
        return
    cells = f"{counted(definition.num_cells, 'cell')} × {definition.trials:,}"
    print(f"{counted(found.trials, 'trial')}: {cells} in {counted(found.chunks, 'chunk')}")
    blocks = counted(found.measured, "measured block")
    print(f"about {duration(found.seconds)} on {counted(found.workers, 'worker')}, from {blocks}")
    print(
        f"at most {duration(found.compile_seconds)} more to import and compile, and some seconds to start the workers"
    )
    print(f"at most {found.bytes / 1e6:,.1f} MB on disk")


def _list() -> None:
    from rich.console import Console

    from attsvm.sweeps import MEASURES, READY, SOURCES

    console = Console()
    ready = [(f"[bold]{name}[/bold]", definition.summary) for name, definition in READY.items()]
    console.print(columns_table(("sweep", "what it shows"), ready))
    measures = [(f"[bold]{name}[/bold]", _summary(measure)) for name, measure in sorted(MEASURES.items())]
    console.print(columns_table(("measure", "what it measures"), measures))
    sources = [(f"[bold]{name}[/bold]", _summary(draw)) for name, draw in SOURCES.items()]
    console.print(columns_table(("source", "what it draws"), sources))


def _summary(documented: object) -> str:
    """The first line of a docstring, without the markup of Sphinx."""
    return re.sub(r":\w+:(?=`)|`", "", (documented.__doc__ or "").partition("\n")[0])
