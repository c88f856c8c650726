"""``attsvm compare``: which heads changed their selection between models or checkpoints, and where the margin moved."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm.cli import completion
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads, head_place
from attsvm.cli.shared import command_line, finish, limit_threads, progress, result_folder
from attsvm.errors import ProblemError
from attsvm.pretrained import check_models

if TYPE_CHECKING:
    from torch import nn

    from attsvm.inspect.inputs import Input
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
    from attsvm.pages.comparison import comparison_page

    with result_folder(out, force, (*models, text, images)) as folder:
        options: dict[str, Any] = {
            "heads": heads,
            "queries": queries,
            "gap": gap,
            "margins": margins,
            "seed": seed,
            "family": family,
            "device": str(find_torch_device(device)),
        }
        series, tokens = _compared(models, text, images, sentence, options)
        page = comparison_page(
            series,
            tokens,
            None if sentence is None else sentence - 1,
            source={"models": series.names, "text": text and str(text), "images": images and str(images)},
            command=command,
            threads=threads,
            seconds=time.perf_counter() - start,
        )
        if folder:
            page.write(folder)
    page.show(json)
    finish(out, "index.html, figures and result.json")


def _compared(
    given: list[str], text: Path | None, images: Path | None, sentence: int | None, options: dict[str, Any]
) -> "tuple[Series, list[list[str]]]":
    """The models inspected one after another, and the tokens of the text."""
    from attsvm.inspect import inputs, models
    from attsvm.inspect import inspect as inspect_model
    from attsvm.inspect.layers import attention_layers
    from attsvm.inspect.series import Series, training_order

    names, steps = training_order(given)
    if len(given) == 1:
        found = models.checkpoints(given[0])
        names, steps = [str(path) for _, path in found], [step for step, _ in found]
    texts = [] if text is None else inputs.read_texts(text)
    numbered = list(enumerate(names))
    leader = next((k for k, name in numbered if images is not None or inputs.has_tokenizer(name)), 0)

    def load(name: str) -> "nn.Module":
        return models.tower(models.load_model(name), pictures=images is not None)

    network = load(names[leader])
    batch = _input(names[leader], network, texts, images, options["family"])
    if sentence is not None and sentence > len(batch.tokens):
        raise ProblemError(f"--sentence: expected a number from 1 to {len(batch.tokens)}, got {sentence}")
    # all models are checked before anything is computed; the first and the last one, which are drawn, stay in memory
    ends: dict[int, nn.Module] = {}
    for k, name in numbered:
        one = network if k == leader else load(name)
        if images is None and k != leader and inputs.has_tokenizer(name):
            _check_same(names[leader], batch, name, _input(name, one, texts, images, options["family"]))
        attention_layers(one, options["family"])  # refuses models without a known one
        if k in (0, len(names) - 1):
            ends[k] = one
    done = []
    for k, name in numbered:
        with progress(Path(name).name) as callback:
            inspection = inspect_model(ends.get(k) or load(name), batch.batch, callback=callback, **options)
        done.append(inspection if k in ends else replace(inspection, source=None))
    return Series.of(names, steps, done), batch.tokens


def _input(name: str, network: "nn.Module", texts: list[str], images: Path | None, family: str | None) -> "Input":
    from attsvm.inspect import inputs
    from attsvm.inspect.layers import attention_layers

    layers = attention_layers(network, family)
    if images is not None:
        return inputs.read_pictures(name, images, network)
    return inputs.tokenized(name, texts, network, layers[0].family)


def _check_same(leader: str, batch: "Input", name: str, other: "Input") -> None:
    """Check that two tokenizers agree, because otherwise selections cannot be compared."""
    one, two = batch.batch["input_ids"], other.batch["input_ids"]
    if one.shape != two.shape or bool((one != two).any()):
        raise ProblemError(f"{name}: expected a tokenizer that gives the tokens of {leader} for this text, got others")
