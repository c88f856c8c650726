"""``attsvm fit``: the main job on a data set or a problem file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.shared import INTERRUPTED, command_line, limit_threads, progress, result_folder, terminal_table
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.problem import Problem

HELP = """
SOURCE is `digits` (scikit-learn's handwritten digits, a picture's 2x2 patches as tokens) or a problem file `.npz`
whose names are the arguments of `attsvm.Problem`: tokens and labels (±1) and, where there are, queries, head, keys,
mask, query_mask. With queries the attention is combined (W), else a prompt (p). A head in the file stays fixed;
without one it is trained with the attention, or fixed by `--fix-head`.

SOURCE may also be labelled texts: a file `.parquet` (`pip install attsvm[text]`), `.csv`, `.tsv`, `.jsonl` or
`.ndjson`, or a folder with a folder of text files for each label. Words get vectors learnt from the texts, and a prompt
and a head are trained over them; page and result set attention beside TF-IDF and the mean of the same vectors.

Examples:

    attsvm fit digits --classes 3,8 --out demo/digits-joint

    attsvm fit digits --classes 3,8 --fix-head --out demo/digits-fixed-head

    attsvm fit problem.npz --steps 200000 --json > result.json

    attsvm fit reviews.parquet --text text --label label --out reviews

    attsvm fit train.csv --test test.csv --p 1.5 --out reviews
"""


def fit(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="`digits`, a problem file `.npz`, or texts.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, figures and results.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Of digits: the two classes.  [default: 3,8]")
    ] = None,
    fix_head: Annotated[
        bool, typer.Option("--fix-head", help="Train the attention alone, under a fixed head.")
    ] = False,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of texts: the column that holds them.  [default: text]")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Of texts: the column of labels.  [default: label]")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Of texts: test on these, and train on all of SOURCE.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Of texts: words that are read, from the beginning.  [default: 400]")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Of texts: length of a word vector.  [default: 200]")] = None,
    min_documents: Annotated[
        int | None, typer.Option(help="Of texts: a word counts if it occurs in so many of them.  [default: 5]")
    ] = None,
    embed: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Of texts: a pretrained transformer, whose states replace the word vectors."),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of texts: adam, mirror_descent or gradient_descent.  [default: adam]"),
    ] = None,
    p: Annotated[
        float | None, typer.Option("--p", help="Of texts: train by mirror descent with the potential ‖·‖_p^p / p.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="At most.  [default: 100,000 with a fixed head, else 5,000; of texts: 5,000 at most]"),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Step size; grows by 1 % of it a step where the head is fixed.  [default: 0.1; texts: 0.01]"),
    ] = None,
    test_fraction: Annotated[float, typer.Option(help="Share of each class set apart for testing.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Of the split into training and test.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier result.")] = False,
) -> None:
    """Train an attention classifier on SOURCE (the help is HELP)."""
    limit_threads(threads)
    command = command_line()
    of_texts: dict[str, Any] = {"text": text, "label": label, "test": test, "max_length": max_length, "dim": dim}
    of_texts |= {"min_documents": min_documents, "embed": embed, "optimizer": optimizer, "p": p}

    from attsvm.apps.texts.text import is_texts

    if source != "digits" and is_texts(source):
        _check_absent({"classes": classes, "fix_head": fix_head or None}, "not for texts")
        from attsvm.cli.fit_text import fit_texts

        chosen = {name: value for name, value in of_texts.items() if value is not None}
        chosen |= {"steps": steps, "learning_rate": learning_rate, "test_fraction": test_fraction, "seed": seed}
        fit_texts(source, out=out, force=force, json=json, command=command, threads=threads, **chosen)
        return
    _check_absent(of_texts, "only for texts")

    # what a command needs is loaded when it runs, so that the others start at once
    from rich.console import Console

    from attsvm.report.fit.folder import write_folder
    from attsvm.report.fit.numbers import numbers
    from attsvm.report.plain import dumps

    with result_folder(out, force) as folder:
        problem, digit_classes = _read(source, classes)

        from attsvm.apps.fit.fit import fit as train_and_compare

        with progress() as callback:
            done = train_and_compare(
                problem,
                fix_head=fix_head,
                test_fraction=test_fraction,
                seed=seed,
                steps=steps,
                learning_rate=0.1 if learning_rate is None else learning_rate,
                callback=callback,
            )
        result = numbers(
            done, problem, source=source, command=command, seed=seed, threads=threads, classes=digit_classes
        )
        if folder:
            write_folder(folder, done, result, command, digit_classes)
    if json:
        print(dumps(result))
    else:
        _show(Console(), done, result)
    if out:
        print(f"{out}: index.html, figures, result.json and run.npz", file=sys.stderr)
    if done.interrupted:
        raise typer.Exit(INTERRUPTED)


def _read(source: str, classes: str | None) -> "tuple[Problem, tuple[int, int] | None]":
    from attsvm.datasets.arrays import labelled_problem
    from attsvm.datasets.digits import digits

    if source == "digits":
        chosen = _classes(classes or "3,8")
        return digits(chosen), chosen
    if not source.lower().endswith(".npz"):
        raise ProblemError(f"{source}: unknown source; `digits`, a problem file `.npz` or texts (.csv, …) wanted")
    if classes is not None:
        raise ProblemError("--classes: only for `digits`; a problem file has its labels")
    return labelled_problem(source), None


def _check_absent(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ProblemError(f"--{name.replace('_', '-')}: {why}")


def _classes(text: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise ProblemError(f"--classes: {text!r} found, two different digits wanted, like 3,8") from None
    return first, second


def _show(console: Any, done: Any, result: dict[str, Any]) -> None:
    from attsvm.report.fit.words import notes, tables, verdict

    console.print(terminal_table(tables(done, result)))
    console.print(verdict(done, result), highlight=False)
    for note in notes(done, result):
        console.print(note, style="bold yellow", highlight=False)
