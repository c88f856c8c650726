"""``attsvm inspect``: what the heads of a trained transformer select, and by what margin."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.interruption import Interrupted, on_interruption
from attsvm.cli import messages
from attsvm.cli.inspection_options import (
    Chat,
    Family,
    Gap,
    Images,
    Margins,
    Pairs,
    Queries,
    Sounds,
    SpecialTokens,
    Target,
    TextFile,
    head_place,
    inspect_arguments,
    text_options,
)
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads
from attsvm.cli.shared import command_line, finish, result_folder
from attsvm.errors import ProblemError

HELP = """
MODEL is a folder with a Hugging Face model or a PEFT adapter, or its name on the hub. The text has one sequence per
line. ViT needs a folder of pictures instead, Whisper a folder of sounds, and a model for texts and pictures needs both.
The decoder of T5 or BART reads the same text, or the text from `--target`. Layers that the input does not reach, such
as those for pictures when there is only text, are skipped and listed.

For each attention head, the matrix W = W_K W_Q'/√d_h is computed from the weights of the model, and the tokens from the
input of its layer. The margin ratio is the smallest margin of W, divided by the best margin of any matrix with the same
Frobenius norm for the same selection. It is an interval, from a primal and a dual solution. The same numbers are
computed for two attention heads per layer of a twin: the same model with random weights, and margins to within 10 %.
With `--head`, only the given attention heads are solved; add `--head all` to solve all of them.

Examples:

    attsvm inspect ./minilm --text sentences.txt --out demo/minilm

    attsvm inspect ./minilm --text sentences.txt --head 3.5

    attsvm inspect ./minilm --text sentences.txt --head 3.5 --head all --no-margins

    attsvm inspect ./minilm --text sentences.txt --head 3.5 --held-out others.txt --out demo/reasons

    attsvm inspect ./minilm --text sentences.txt --effects --no-margins --no-twin --out demo/effects

    attsvm inspect ./vit --images pictures --queries 500 --json > result.json

    attsvm inspect ./llava --text questions.txt --images pictures --out demo/llava

    attsvm inspect ./t5 --text english.txt --target german.txt --out demo/t5

    attsvm inspect ./whisper --sounds recordings --target transcripts.txt --queries 500 --no-margins

    attsvm inspect ./final --text sentences.txt --checkpoints runs --out demo/training

    attsvm inspect ./mine --text sentences.txt --family my_package.attention:MyFamily
"""


def more_help(arguments: Sequence[str]) -> str:
    """The families of models; their names are read for the help alone, because that imports PyTorch."""
    if not {"-h", "--help"} & {*arguments}:
        return ""
    try:
        from attsvm.inspect.families import FAMILIES
    except ModuleNotFoundError:
        families = "that `pip install 'attsvm[inspect]'` provides"
    else:
        families = ", ".join(f"`{name}`" for name in FAMILIES.names())
    return (
        f"A family says how to read the attention of a model. The families are {families}; `--family` also takes the"
        " import path `package.module:name` of your own.\n\n"
    )


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a Hugging Face model, or its name on the hub.")
    ],
    text: TextFile = None,
    special_tokens: SpecialTokens = True,
    chat: Chat = False,
    pairs: Pairs = False,
    images: Images = None,
    sounds: Sounds = None,
    target: Target = None,
    family: Family = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="L.H",
            help="Inspect only this head, layer and head counted from 0, and show it in detail. Repeat for several"
            " heads; the first is shown in detail. `--head all` inspects all others, too.  [default: all heads, none in"
            " detail]",
        ),
    ] = None,
    sentence: Annotated[
        int, typer.Option(metavar="N", help="The sequence to show for it, counted from 0 without blank lines.")
    ] = 0,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="FILE",
            help="Other text with one sequence per line, on which the reasons for the selections of the head in "
            "detail are tested.",
        ),
    ] = None,
    effects: Annotated[
        bool,
        typer.Option(
            "--effects",
            help="Also measure what each attention head writes and what removing it costs: 11 more model runs per "
            "head.",
        ),
    ] = False,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of checkpoints, whose names end with the training step.")
    ] = None,
    margins: Margins = True,
    twin: Annotated[
        bool | None,
        typer.Option(
            "--twin/--no-twin",
            help="Also inspect a twin: the same model with random weights.  [default: twin; no-twin with --head]",
        ),
    ] = None,
    queries: Queries = None,
    gap: Gap = 1e-2,
    out: OutFolder = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled queries and of the twin.")] = 0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Inspect a trained transformer (the help is HELP)."""
    start = time.perf_counter()
    named = [one for one in head or [] if one != "all"]
    place = head_place("--head", named[0]) if named else None
    arguments = inspect_arguments(
        [model],
        text,
        images,
        head=None if "all" in (head or []) else named,
        sentence=sentence,
        queries=queries,
        gap=gap,
        margins=margins,
        seed=seed,
        family=family,
        device=device,
        sounds=sounds,
    )
    if sounds is not None and (text is not None or images is not None):
        raise ProblemError("--sounds: expected neither --text nor --images with it")
    if target is not None and ((text is None and sounds is None) or images is not None or held_out is not None):
        raise ProblemError("--target: expected --text or --sounds with it, and neither --images nor --held-out")
    as_text = text_options(text, images, special_tokens=special_tokens, chat=chat, pairs=pairs)
    heads = arguments["heads"]
    if held_out is not None and (text is None or place is None):
        missing = "--text" if text is None else "--head"
        raise ProblemError(f"--held-out: expected --text and --head L.H with it; {missing} is missing")

    given = {"text": text, "images": images, "sounds": sounds, "target": target}
    with result_folder(out, force, (model, *given.values(), checkpoints, held_out)) as write:
        from attsvm.inspect import SavedModel
        from attsvm.pages import InspectionPages

        saved = SavedModel.load(
            model,
            text,
            images,
            family,
            sounds=sounds,
            target=target,
            checkpoint_folder=checkpoints,
            held_out=held_out,
            **as_text,
        )
        if sentence >= len(saved.given.tokens):
            raise ProblemError(f"--sentence: expected a number from 0 to {len(saved.given.tokens) - 1}, got {sentence}")
        with_twin = heads is None if twin is None else twin
        pages = InspectionPages(
            saved.given,
            sentence,
            write,
            start=start,
            # without margins, a page before the others are inspected would only delay them
            waits=not margins and bool(with_twin or checkpoints),
            source={"model": model} | {one: path and str(path) for one, path in given.items()},
            command=command_line(),
            threads=threads,
        )
        try:
            found = saved.inspect(
                place,
                with_twin=with_twin,
                with_effects=effects,
                shown=messages.progress,
                keep=pages.keep,
                say=messages.say,
                **arguments,
            )
            page = pages.write(found)
        except Interrupted:
            if pages.latest is None:
                raise
            pages.write(pages.latest, "interrupted").show(json)
            on_interruption(lambda: f"{out or 'the result'} holds {pages.finished()}")
            raise
    page.show(json)
    finish(out, "index.html, figures and result.json")
