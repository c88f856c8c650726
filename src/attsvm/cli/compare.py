"""``attsvm compare``: which heads changed their selection between models or checkpoints, and where the margin moved."""

import time
from pathlib import Path
from typing import Annotated

import typer

from attsvm.cli import messages
from attsvm.cli.inspection_options import (
    Chat,
    Family,
    Gap,
    Images,
    Margins,
    Pairs,
    Queries,
    SpecialTokens,
    TextFile,
    inspect_arguments,
    text_options,
)
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads
from attsvm.cli.shared import finish, result_folder, write_page
from attsvm.errors import ProblemError

HELP = """
Each MODEL is a folder with a Hugging Face model, or its name on the hub. A single MODEL is a folder of checkpoints,
such as `checkpoint-500`, which are compared in the order of their training steps. Three or more checkpoints of one
training are sorted in the same way. The text has one sequence per line; ViT needs a folder of pictures instead. The
first model with a tokenizer splits the text, and the tokenizers of the others must agree with it.

For each attention head, the last model is compared with the first: the share of queries that select another token, the
measures of `attsvm inspect` before and after, and whether the margin ratio (the margin of W over the best margin for
the same norm) certainly moved, that is, whether its two intervals are disjoint. With `--out`, the page shows the
attention of the heads that changed most side by side, and curves over three or more models.

Examples:

    attsvm compare ./before ./after --text sentences.txt --out demo/changes

    attsvm compare runs --text sentences.txt --no-margins --out demo/training

    attsvm compare ./before ./after --text sentences.txt --head 3.5 --json > result.json
"""


def compare(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Two or more models, or a folder of checkpoints.")
    ],
    text: TextFile = None,
    special_tokens: SpecialTokens = True,
    chat: Chat = False,
    pairs: Pairs = False,
    images: Images = None,
    family: Family = None,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="L.H", help="Compare only this head, counted from 0. Repeatable.  [default: all heads]"),
    ] = None,
    sentence: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The sequence to show, counted from 0.  [default: for each head the one that changed most]",
        ),
    ] = None,
    margins: Margins = True,
    queries: Queries = None,
    gap: Gap = 1e-2,
    out: OutFolder = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled queries.")] = 0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Compare trained transformers (the help is HELP)."""
    start = time.perf_counter()
    if len(models) == 1 and (Path(models[0]) / "config.json").is_file():
        raise ProblemError(f"MODEL: expected two models, or a folder of checkpoints, got one model: {models[0]}")
    arguments = inspect_arguments(
        models,
        text,
        images,
        head=head,
        sentence=sentence,
        queries=queries,
        gap=gap,
        margins=margins,
        seed=seed,
        family=family,
        device=device,
    )

    as_text = text_options(text, images, special_tokens=special_tokens, chat=chat, pairs=pairs)
    with result_folder(out, force, (*models, text, images)) as write:
        from attsvm.inspect import inspect_series

        series, tokens = inspect_series(
            models, text, images, sentence=sentence, shown=messages.progress, as_text=as_text, **arguments
        )
        page = write_page(
            write,
            series,
            tokens=tokens,
            sentence=sentence,
            source={"models": series.names, "text": text and str(text), "images": images and str(images)},
            threads=threads,
            seconds=time.perf_counter() - start,
        )
    page.show(json)
    finish(out, "index.html, figures and result.json")
