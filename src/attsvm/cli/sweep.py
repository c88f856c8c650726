"""``attsvm sweep``: grids of trials on all cores or a cluster."""

import re
import sys
from json import loads
from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm._utils.interruption import on_interruption
from attsvm._utils.text import one_line
from attsvm.cli import completion
from attsvm.cli.exits import INCOMPLETE
from attsvm.cli.options import Device, Json, named_values
from attsvm.cli.shared import command_line, progress
from attsvm.errors import ProblemError

HELP = """
NAME is a ready sweep from `attsvm sweep --list`, or an import path `package.module:NAME`. Without NAME, `--grid` and
`--measure` describe the sweep. With NAME, `--grid` replaces its grid, `--set` adds to its fixed arguments, and so on.
The result is an xarray dataset in the folder given by `--out`. To continue an interrupted sweep, run the same command
again.

Examples:

    attsvm sweep --list

    attsvm sweep phase-feasible --out out/feasible

    attsvm sweep phase-global --grid dim=2,4,8 --trials 200 --out out/small

    attsvm sweep --grid dim=2,6,10 --grid learning_rate=0.03,0.1 --set optimizer=normalized_gradient_descent --measure kind --measure margin_ratio=frobenius,nuclear --out out/own

    attsvm sweep phase-global --out /shared/phase --scheduler tcp://10.0.0.1:8786
"""  # noqa: E501  # a command is one line


def sweep(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", autocompletion=completion.SWEEPS, help="A ready sweep.")
    ] = None,
    list_all: Annotated[
        bool, typer.Option("--list", help="List the ready sweeps, the measures and the sources.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="STORE", help="Folder for the result.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=VALUES",
            help="An axis; separate values by commas, norms with commas by semicolons: 'norm=l2,1;nuclear'. "
            "Repeatable.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A fixed argument for all cells. Repeatable."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", help="A measure, or package.module:function; norms as for --grid. Repeatable."),
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="Source of the problems.  [default: random]")] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", help="Number of trials in each cell.  [default: 100]")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the trials.  [default: 0]")] = None,
    block: Annotated[int | None, typer.Option("--block", help="Number of trials in a batch.")] = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="Number of trials to write together.")] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Number of worker processes; 0 for none.  [default: one per core; 0 on a GPU]"),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", metavar="ADDRESS", help="Address of a running Dask scheduler.")
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Run a sweep (the help is HELP)."""
    if list_all:
        _list()
        return
    from attsvm.pages import make_page
    from attsvm.sweeps import define, sweep

    definition = _definition(
        define,
        name,
        grid or [],
        fixed or [],
        {"measures": measure, "data": data, "trials": trials, "seed": seed, "block": block},
    )
    if out is None:
        raise ProblemError("--out: expected a folder for the result")
    on_interruption(lambda: f"finished chunks are kept in {out}; run the command again to continue")
    with progress("sweep") as callback:
        dataset = sweep(
            definition,
            store=out,
            workers=workers,
            scheduler=scheduler,
            chunk=chunk,
            device=device,
            callback=callback,
            command=command_line(),
        )
    make_page(dataset, store=str(out), command=command_line()).show(json)
    _warn(loads(dataset.attrs["errors"]))


def _list() -> None:
    """Print the ready sweeps, the measures and the sources."""
    from attsvm.pages import Page, Table
    from attsvm.sweeps import MEASURES, READY, SOURCES

    kinds = {
        ("sweep", "what it shows"): {name: definition.summary for name, definition in READY.items()},
        ("measure", "what it measures"): {name: _summary(MEASURES[name]) for name in sorted(MEASURES)},
        ("source", "what it draws"): {name: _summary(draw) for name, draw in SOURCES.items()},
    }
    Page({}, terminal=[Table([*rows.items()], columns, words=2) for columns, rows in kinds.items()]).show()


def _summary(documented: object) -> str:
    """The first line of a docstring, without the markup of Sphinx."""
    return re.sub(r":\w+:(?=`)|`", "", (documented.__doc__ or "").partition("\n")[0])


def _definition(define: Any, name: str | None, grid: list[str], fixed: list[str], options: dict[str, Any]) -> Any:
    given = {key: value for key, value in options.items() if value is not None}
    axes = {key: [_value(text) for text in _divided(key, values)] for key, values in _named("--grid", grid).items()}
    arguments = {key: _value(text) for key, text in _named("--set", fixed).items()}
    if name is None:
        if not axes or not given.get("measures"):
            raise ProblemError("NAME: expected a sweep from `attsvm sweep --list`, or the options --grid and --measure")
        return define(axes, given.pop("measures"), fixed=arguments, **given)
    definition = define(name)
    if axes:
        given["grid"] = axes
    if arguments:
        given["fixed"] = {**definition.fixed, **arguments}
    return definition.changed(**given) if given else definition


def _named(option: str, texts: list[str]) -> dict[str, str]:
    """The texts of values by the names of arguments, in which a dash may stand for an underscore."""
    return {key.replace("-", "_"): value for key, value in named_values(texts, option).items()}


def _divided(key: str, values: str) -> list[str]:
    """The texts of the values of an axis; the name of a norm may have a comma."""
    from attsvm.norms import norms_in

    return norms_in(values) if key.rpartition(".")[2] == "norm" else values.split(",")


def _value(text: str) -> Any:
    """A number, True, False, None, or the text itself."""
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _warn(errors: list[dict[str, Any]]) -> None:
    """Say on stderr which trials failed, and end the command as incomplete."""
    for error in errors:
        cell = ", ".join(f"{key} = {value}" for key, value in error["cell"].items())
        first, stop = error["trials"]
        said = one_line(f"{cell}: trials {first} to {stop - 1} failed: {error['error']}")
        print(f"attsvm: warning: {said}", file=sys.stderr)
    if errors:
        raise typer.Exit(INCOMPLETE)
