"""``attsvm inspect``: what the heads of a trained transformer select, and by what margin."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.interruption import Interrupted, on_interruption
from attsvm.cli import completion, messages
from attsvm.cli.growing import SECONDS_A_PAGE, Growing
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads, head_place
from attsvm.cli.shared import command_line, finish, limit_threads, updated_folder
from attsvm.errors import ProblemError
from attsvm.pretrained import check_models

if TYPE_CHECKING:
    from torch import nn

    from attsvm.inspect import HeadProgress, Inspection
    from attsvm.inspect.causal import Running
    from attsvm.inspect.inputs import Input
    from attsvm.inspect.source import Source
    from attsvm.pages.inspection import InspectionPages
    from attsvm.pages.inspection_numbers import Found
    from attsvm.pages.page import Page

TWIN_GAP = 0.1
"""Relative width of the margins' intervals of the twin, unless ``--gap`` is larger; the twin is only compared with."""

TWIN_HEADS = 2
"""Heads of each layer of the twin. With random weights they are interchangeable."""

HELP = """
MODEL is a folder with a Hugging Face model, or its name on the hub. The text has one sequence per line; ViT takes a
folder of pictures instead.

The matrix W = W_K W_Q'/√d_h of each head is computed from the weights of the model and the tokens that enter its layer.
Its smallest margin is divided by the best margin that any matrix of the same Frobenius norm has for the same selection;
this ratio is an interval, from a primal and a dual solution. The same numbers are computed for two heads of each
layer of a twin, the same model with random weights, with margins to 10 %. With `--head` only the given heads are
solved.

Examples:

    attsvm inspect ./minilm --text sentences.txt --out demo/minilm

    attsvm inspect ./minilm --text sentences.txt --head 3.5

    attsvm inspect ./minilm --text sentences.txt --view 3.5 --no-margins

    attsvm inspect ./minilm --text sentences.txt --head 3.5 --held-out others.txt --out demo/reasons

    attsvm inspect ./vit --images pictures --queries 500 --json > result.json

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
        f"The attention is read as one of the families {families}, or as given by `--family`: an installed family, or"
        " an import path `package.module:name`.\n\n"
    )


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a Hugging Face model, or its name.")],
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="Text with one sequence per line.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Pictures, for ViT.")] = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.FAMILIES,
            help="Family of the model, or package.module:name.  [default: found by the model's modules]",
        ),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            metavar="L.H",
            help="Inspect only this head, counted from 0, and show it in detail. Repeat for several heads; the first"
            " is shown in detail.  [default: all heads]",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(metavar="L.H", help="The head to show in detail beside all others.  [default: the first --head]"),
    ] = None,
    sentence: Annotated[
        int, typer.Option(metavar="N", help="The sequence to show for it, counted from 1 without blank lines.")
    ] = 1,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="FILE",
            help="Other text with one sequence per line. The reasons of the head in detail are tested on it.",
        ),
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folders with models whose names end with their training step.")
    ] = None,
    margins: Annotated[bool, typer.Option(help="Solve for the best margins; this takes most of the time.")] = True,
    twin: Annotated[
        bool | None,
        typer.Option(
            "--twin/--no-twin",
            help="Inspect a twin, too: the same model with random weights.  [default: twin, but no-twin with --head]",
        ),
    ] = None,
    queries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Queries of a layer to inspect.  [default: all, or a sample of long sequences]"),
    ] = None,
    gap: Annotated[float, typer.Option(help="Relative width of the margins' intervals.")] = 1e-2,
    out: OutFolder = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled queries and of the twin.")] = 0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Inspect a trained transformer (the help is HELP)."""
    limit_threads(threads)
    command, start = command_line(), time.perf_counter()
    if (text is None) == (images is None):
        raise ProblemError(f"--text, --images: expected one of them, got {'none' if text is None else 'both'}")
    heads = [head_place("--head", one) for one in head] if head else None
    place = head_place("--view", view) if view is not None else heads[0] if heads else None
    check_number("--gap", gap, "a number between 0 and 1", lambda x: 0 < x < 1)
    for name, number in (("--sentence", sentence), ("--queries", queries)):
        if number is not None:
            check_integer(name, number, 1)
    check_seed(seed, "--seed")
    check_models([model], pictures=images is not None)
    if held_out is not None and (text is None or place is None):
        raise ProblemError("--held-out: expected --text and a head in detail by --head or --view, got none")

    from attsvm._utils.devices import find_torch_device

    with updated_folder(out, force, (model, text, images, checkpoints, held_out)) as update:
        subject = _loaded(model, text, images, family, checkpoints, held_out)
        given = subject.given
        if not 1 <= sentence <= len(given.tokens):
            raise ProblemError(f"--sentence: expected a number from 1 to {len(given.tokens)}, got {sentence}")
        options: dict[str, Any] = {
            "heads": heads,
            "queries": queries,
            "gap": gap,
            "margins": margins,
            "seed": seed,
            "family": family,
            "device": str(find_torch_device(device)),
        }
        about = {
            "source": {"model": model, "text": text and str(text), "images": images and str(images)},
            "command": command,
            "threads": threads,
        }
        report = _Report(given, sentence - 1, json, start, about)
        with_twin = heads is None if twin is None else twin
        # without margins, a page before the others are inspected would only delay them
        wait = SECONDS_A_PAGE if not margins and (with_twin or checkpoints) else 0.0
        growing: Growing[Found] = Growing(update, report.files, wait)
        try:
            found = _inspected(subject, place, with_twin, options, growing.keep)
            growing.write(found, "")
        except Interrupted:
            latest = growing.latest
            if latest is None:
                raise
            growing.write(latest, "interrupted")
            report.show(latest, "interrupted")
            on_interruption(lambda: f"{out or 'the result'} holds {report.holds(latest)}")
            raise
    report.show(found, "")
    finish(out, "index.html, figures and result.json")


class _Report:
    """How an inspection is shown: files and the terminal.

    ``sentence``: the sequence that is shown for the head in detail. ``start``: when the command began. ``about``: more
    arguments of ``inspection_numbers``.
    """

    def __init__(self, given: "Input", sentence: int, json: bool, start: float, about: dict[str, Any]) -> None:
        self.given, self.sentence, self.json, self.start, self.about = given, sentence, json, start, about
        self.pages: InspectionPages | None = None

    def files(self, found: "Found", state: str) -> dict[str, bytes]:
        """The page, its figures and the numbers."""
        return self._page(found, state).files()

    def show(self, found: "Found", state: str) -> None:
        """The numbers as JSON, or as tables."""
        self._page(found, state).show(self.json)

    def holds(self, found: "Found") -> str:
        """The number of finished heads."""
        from attsvm.pages.inspection import finished_words

        return finished_words(found)

    def _page(self, found: "Found", state: str) -> "Page":
        from attsvm.pages.inspection import InspectionPages
        from attsvm.pages.inspection_numbers import inspection_numbers

        if self.pages is None:
            self.pages = InspectionPages(self.given.tokens, self.sentence, self.given.words)
        seconds = time.perf_counter() - self.start
        numbers = inspection_numbers(found, seconds=seconds, interrupted=bool(state), **self.about)
        # after an interruption there is no time to draw
        return self.pages.of(found, numbers, state, draws=state != "interrupted")


class _Subject(NamedTuple):
    """The model, its input, and its checkpoints by training step."""

    network: "nn.Module"
    given: "Input"
    series: list[tuple[int, Path]]
    held_out: "Source | None"


def _loaded(
    model: str,
    text: Path | None,
    images: Path | None,
    family: str | None,
    checkpoints: Path | None,
    held_out: Path | None,
) -> _Subject:
    from attsvm.inspect import inputs, models
    from attsvm.inspect.layers import attention_layers
    from attsvm.inspect.source import Source

    texts = [] if text is None else inputs.read_texts(text)
    series = [] if checkpoints is None else models.checkpoints(checkpoints)
    network = models.tower(models.load_model(model), pictures=images is not None)
    layers = attention_layers(network, family)
    if images is None:
        given = inputs.tokenized(model, texts, network, layers[0].family)
    else:
        given = inputs.read_pictures(model, images, network)
    other = None
    if held_out is not None:
        batch = inputs.tokenized(model, inputs.read_texts(held_out), network, layers[0].family).batch
        other = Source.whole(network, batch, layers)
    return _Subject(network, given, series, other)


def _testable(held_out: "Source", place: tuple[int, int], seed: int) -> "Running":
    """Run the head in detail on other text, and say what a test of its reasons can show."""
    from attsvm.inspect.causal import Heads, Running

    layer, head = place
    running = Running.of(Heads(held_out, layer, (head,), None), None, seed)
    messages.say(
        f"Head {layer}.{head} gives {running.score:.2f} of its attention on the held-out text to the tokens that it"
        f" selects, and {running.resampled:.2f} to the same places if its queries and keys are made from random tokens."
        " The causal tests will show which origins cause the difference."
    )
    return running


def _inspected(
    subject: _Subject,
    place: tuple[int, int] | None,
    twin: bool,
    options: dict[str, Any],
    keep: "Callable[[Found], None]",
) -> "Found":
    """The inspections of the model, of its twin and of its checkpoints; ``keep`` receives what is found until then."""
    from attsvm.inspect import inspect as inspect_model
    from attsvm.inspect import models
    from attsvm.inspect.tested import tested_reasons
    from attsvm.pages.inspection_numbers import Found

    network, given, series, held_out = subject
    # a head whose reasons cannot be tested is refused before anything else is computed
    running = None if held_out is None or place is None else _testable(held_out, place, options["seed"])

    def inspected(name: str, model: "nn.Module", known: "Callable[[Inspection], Found]", **options: Any) -> "Found":
        source: Source | None = None

        def see(at: "HeadProgress") -> None:
            nonlocal source
            so_far = at.inspection()
            source = so_far.source
            if len(so_far.heads) == at.steps:  # all are measured
                keep(known(so_far))

        with messages.progress(name, see) as callback:
            inspection = inspect_model(model, given.batch, callback=callback, **options)
        # the model does not change here, so what was captured of it still holds
        return known(replace(inspection, source=source))

    found = inspected("the model", network, Found, view=place, **options)
    explanation = None if found.done.view is None else found.done.view.explanation
    if running is not None and explanation is not None:
        with messages.progress("causal tests", lambda _: None) as callback:
            found = found._replace(tests=tested_reasons(explanation, running, options["seed"], callback))
    if twin:
        some = [(head.layer, head.head) for head in found.done.heads if head.head < TWIN_HEADS]
        of_twin = options | {"gap": max(options["gap"], TWIN_GAP), "heads": options["heads"] or some}
        found = inspected("its twin", models.random_twin(network, options["seed"]), found.with_twin, **of_twin)
    for step, path in series:
        checkpoint = models.tower(models.load_model(str(path)), pictures="pixel_values" in given.batch)
        found = inspected(path.name, checkpoint, partial(found.with_checkpoint, step), **options)
    return found
