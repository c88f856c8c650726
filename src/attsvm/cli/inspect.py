"""``attsvm inspect``: what the heads of a trained transformer select, and by what margin."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.shared import command_line, limit_threads, result_folder
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.torch.inspection import Inspection
    from attsvm.torch.inspection.loading import Input

TWIN_GAP = 0.1
"""Relative width of the margins' intervals of the twin, if nothing wider is asked for: it is there to compare with."""

HELP = """
MODEL is a folder with a Hugging Face model of the BERT, RoBERTa, GPT-2, Llama or ViT family, or its name where the
network allows. The text has one sequence a line; for ViT give a folder of pictures instead.

Each head's W = W_K W_Q'/√d_h is rebuilt from the model's weights and the tokens that enter its layer. Its smallest
margin is put over the best margin that any matrix of the same Frobenius norm has for the same selection; the ratio is
an interval, from a primal and a dual solution. A randomly initialised twin of the model is looked at too, its margins
to 10 % only.

Examples:

    attsvm inspect ./minilm --text sentences.txt --out demo/minilm

    attsvm inspect ./minilm --text sentences.txt --head 3.5 --no-margins

    attsvm inspect ./vit --images pictures --queries 500 --json > result.json

    attsvm inspect ./final --text sentences.txt --checkpoints runs --out demo/training
"""


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a Hugging Face model, or its name.")],
    text: Annotated[Path | None, typer.Option(metavar="FILE", help="One sequence a line.")] = None,
    images: Annotated[Path | None, typer.Option(metavar="DIR", help="Pictures, for ViT.")] = None,
    head: Annotated[
        str | None, typer.Option(metavar="L.H", help="A head to look at closely, counted from 0.  [default: none]")
    ] = None,
    sentence: Annotated[int, typer.Option(metavar="N", help="Which sequence to show of it, counted from 1.")] = 1,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folders with models whose names end with their training step.")
    ] = None,
    margins: Annotated[bool, typer.Option(help="Solve for the best margins: most of the work.")] = True,
    twin: Annotated[bool, typer.Option(help="Look at a randomly initialised twin too.")] = True,
    queries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Queries of a layer to look at.  [default: all, or some of long sequences]"),
    ] = None,
    gap: Annotated[float, typer.Option(help="Relative width of the margins' intervals.")] = 1e-2,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, figures, result.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sampled queries and of the twin.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier result.")] = False,
) -> None:
    """Look into a trained transformer (the help is HELP)."""
    limit_threads(threads)
    command, start = command_line(), time.perf_counter()
    if (text is None) == (images is None):
        raise ProblemError("--text, --images: one of them wanted")
    place = None if head is None else _place(head)

    from attsvm.report.inspection.numbers import inspection_numbers
    from attsvm.report.plain import dumps

    with result_folder(out, force) as folder:
        from attsvm.torch.inspection import inspect as look
        from attsvm.torch.inspection import loading
        from attsvm.torch.inspection.capture import attention_layers

        texts = [] if text is None else loading.read_texts(text)
        series = [] if checkpoints is None else loading.checkpoints(checkpoints)
        network = loading.load_model(model)
        layers = len(attention_layers(network))
        if text is not None:
            given = loading.tokenized(model, texts, network)
        else:
            assert images is not None
            given = loading.read_pictures(model, images, network)
        if not 1 <= sentence <= len(given.tokens):
            raise ProblemError(f"--sentence: {sentence} found, between 1 and {len(given.tokens)} wanted")
        common: dict[str, Any] = {"queries": queries, "gap": gap, "margins": margins, "seed": seed}
        with _progress(layers * (1 + twin + len(series))) as moved:
            done = look(network, given.batch, view=place, callback=moved, **common)
            other = None
            if twin:
                of_twin = common | {"gap": max(gap, TWIN_GAP)}
                other = look(loading.random_twin(network, seed), given.batch, callback=moved, **of_twin)
            steps = [
                (step, look(loading.load_model(str(path)), given.batch, callback=moved, **common))
                for step, path in series
            ]
        result = inspection_numbers(
            done,
            other,
            steps,
            source={"model": model, "text": text and str(text), "images": images and str(images)},
            command=command,
            threads=threads,
            seconds=time.perf_counter() - start,
        )
        if folder:
            from attsvm.report.inspection.page import write_inspection

            write_inspection(folder, done, other, steps, result, given.tokens, sentence - 1)
    if json:
        print(dumps(result))
    else:
        _show(done, other, given, sentence - 1)
    if out:
        print(f"{out}: index.html, figures and result.json", file=sys.stderr)


def _place(head: str) -> tuple[int, int]:
    try:
        layer, of_layer = (int(part) for part in head.split("."))
    except ValueError:
        raise ProblemError(f"--head: {head!r} found, layer and head wanted, like 3.5") from None
    return layer, of_layer


@contextlib.contextmanager
def _progress(layers: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that moves layer by layer."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("layer {task.fields[layer]}, head {task.fields[head]}"), BarColumn(), TimeElapsedColumn())
    before = [-1, -1]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("inspecting", total=layers, layer=0, head=0)

        def moved(layer: int, head: int) -> None:
            new_layer = layer != before[0] or head <= before[1]
            before[:] = layer, head
            bar.update(task, advance=float(new_layer), layer=layer, head=head)

        yield moved


def _show(done: "Inspection", other: "Inspection | None", given: "Input", sentence: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from attsvm.report.inspection.numbers import layer_rows
    from attsvm.report.inspection.words import notes, of_view, summary, view_lines

    console = Console()
    console.print(summary(done), highlight=False)
    for name, one in (("", done), ("randomly initialised twin", other)):
        if one is None:
            continue
        heads, rows = layer_rows(one)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=name or None, title_justify="left")
        for k, title in enumerate(heads):
            table.add_column(title, justify="left" if k == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for note in notes(done, other):
        console.print(note, highlight=False)
    if done.view is not None:
        table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
        for left, right in of_view(done.view):
            table.add_row(left, right)
        console.print(table)
        lines: list[Any] = view_lines(done.view, given.tokens[sentence], sentence)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("query", "selects", "probability", "support tokens"):
            table.add_column(title, justify="right" if title == "probability" else "left")
        for line in lines:
            table.add_row(*line)
        console.print(table)
