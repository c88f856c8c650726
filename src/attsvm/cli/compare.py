"""``attsvm compare``: which heads changed their selection between models or checkpoints, and where the margin moved."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm.cli import completion, messages
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads, head_place
from attsvm.cli.shared import command_line, finish, limit_threads, result_folder
from attsvm.cli.tables import columns_table
from attsvm.errors import ProblemError
from attsvm.pretrained import check_models

if TYPE_CHECKING:
    from attsvm.inspect.series import Series

HELP = """
Each MODEL is a folder with a Hugging Face model, or its name on the hub. A single MODEL is a folder with checkpoints,
such as `checkpoint-500`, which are compared in the order of their steps. Three or more checkpoints of one training are
put into this order, too. The text has one sequence per line; ViT takes a folder of pictures instead. The tokens are
those of the first model that has a tokenizer, and the tokenizers of the others must agree with it.

For each head, the last model is compared with the first: the share of queries that select another token, the measures
of `attsvm inspect` before and after, and whether the margin ratio (the margin of W over the best one of the same norm)
certainly moved, which means that its two intervals are disjoint. With `--out`, the page shows the attention of the
heads that changed most side by side, and curves over three or more models.

Examples:

    attsvm compare ./before ./after --text sentences.txt --out demo/changes

    attsvm compare runs --text sentences.txt --no-margins --out demo/training

    attsvm compare ./before ./after --text sentences.txt --head 3.5 --json > result.json
"""

MOST_ROWS = 30
"""Most heads in the table of the terminal."""


def compare(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Two or more models, or a folder with checkpoints.")
    ],
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Text with one sequence per line.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Pictures, for ViT.")] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.FAMILIES,
            help="Family of the models, or package.module:name.  [default: found by the models' modules]",
        ),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="L.H", help="Compare only this head, counted from 0. Repeatable.  [default: all heads]"),
    ] = None,
    sentence: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The sequence to show, counted from 1.  [default: for each head the one that changed most]",
        ),
    ] = None,
    margins: Annotated[bool, typer.Option(help="Solve for the best margins; this takes most of the time.")] = True,
    queries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Queries of a layer to compare.  [default: all, or a sample of long sequences]"),
    ] = None,
    gap: Annotated[float, typer.Option(help="Relative width of the margins' intervals.")] = 1e-2,
    out: OutFolder = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled queries.")] = 0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Compare trained transformers (the help is HELP)."""
    limit_threads(threads)
    command, start = command_line(), time.perf_counter()
    if (text is None) == (images is None):
        raise ProblemError(f"--text, --images: expected one of them, got {'none' if text is None else 'both'}")
    heads = [head_place("--head", one) for one in head] if head else None
    check_number("--gap", gap, "a number between 0 and 1", lambda x: 0 < x < 1)
    for name, number in (("--sentence", sentence), ("--queries", queries)):
        if number is not None:
            check_integer(name, number, 1)
    check_seed(seed, "--seed")
    if len(models) == 1 and (Path(models[0]) / "config.json").is_file():
        raise ProblemError(f"MODEL: expected two models, or a folder with checkpoints, got one model: {models[0]}")
    check_models(models, pictures=images is not None)

    from attsvm._utils.devices import find_torch_device
    from attsvm.pages.comparison.numbers import comparison_numbers
    from attsvm.pages.plain import dumps

    with result_folder(out, force, (*models, text, images)) as folder:
        from attsvm.inspect.saved_models import inspect_series

        series, tokens = inspect_series(
            models,
            text,
            images,
            sentence=sentence,
            shown=messages.progress,
            heads=heads,
            queries=queries,
            gap=gap,
            margins=margins,
            seed=seed,
            family=family,
            device=str(find_torch_device(device)),
        )
        result = comparison_numbers(
            series,
            source={"models": series.names, "text": text and str(text), "images": images and str(images)},
            command=command,
            threads=threads,
            seconds=time.perf_counter() - start,
        )
        if folder:
            from attsvm.pages.comparison.page import write_comparison

            write_comparison(folder, series, result, tokens, None if sentence is None else sentence - 1)
    if json:
        print(dumps(result))
    else:
        _show(series)
    finish(out, "index.html, figures and result.json")


def _show(series: "Series") -> None:
    from rich.console import Console

    from attsvm.pages.comparison.words import left_out, notes, short_rows, summary, verdict

    console = Console()
    console.print(f"{summary(series)}.", highlight=False)
    console.print(verdict(series), highlight=False)
    for note in notes(series):
        console.print(note, style="bold yellow", highlight=False)
    titles, rows = short_rows(series)
    if rows:
        console.print(columns_table(titles, rows[:MOST_ROWS], right=titles[1:]))
    if left_out(series):
        console.print(left_out(series), highlight=False)
    if len(rows) > MOST_ROWS:
        console.print(f"{len(rows) - MOST_ROWS:,} more heads: --out DIR writes all of them.", highlight=False)
