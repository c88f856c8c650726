"""``attsvm fit``: train attention on labelled data; with a fixed head, compare its weights with an Att-SVM."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.extras import check_installed
from attsvm._utils.files import is_table_file, regular_file
from attsvm._utils.interruption import Interrupted, on_interruption
from attsvm.cli import completion
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.options import (
    Device,
    Encoding,
    ForceFolder,
    Json,
    OutFolder,
    SplitSeed,
    TestFraction,
    Threads,
    named_option,
    named_values,
)
from attsvm.cli.shared import finish, progress, result_folder, write_page

if TYPE_CHECKING:
    from attsvm._fit import Fit
    from attsvm.pages import Page
    from attsvm.training import Run

HELP = """
SOURCE is the name of a data source, a file that a source can read, or the import path `package.module:name` of your
own `Source` (see `attsvm.datasets`).

Labels are -1 and 1, or any two numbers or words. If the data have no prediction head, the head and the prompt (p) are
trained together and not compared with an Att-SVM; this is `attsvm.AttentionClassifier` with `ensemble=False`.
`--no-train-head` fixes the prediction head to logistic regression on the mean token and trains only the attention,
towards its Att-SVM; its predictions are less accurate. With queries, the attention is combined (W). Some sequences are
held out for a test, and the steps differ from those of `attsvm train`: their runs can have other levels of evidence.

Tables `.csv`, `.tsv`, `.jsonl` and `.parquet` have one row for each token: `--bag` names the column with the bag of
each row, `--label` the column with the labels, and all other columns describe the token by numbers or words. For
tables, more than two classes, archives with `tokens` (N, d) and `bag` or `offsets`, and data with `--test` or groups,
only the classifier is trained, with its default settings: an ensemble if there are few bags. DIR then has a
`model.npz`, which `attsvm predict` reads.

If a source draws its data at random and knows which token decides the label, the layer is also compared with other
classifiers over several draws. Each accuracy has a 95 % interval; below 20 sequences, counts are shown instead.
After Ctrl-C, the result covers the steps and draws completed so far, and the page has no figures.

Examples:

    attsvm fit bags.csv --bag molecule --label active --out result

    attsvm fit train.parquet --bag slide --label grade --groups patient --test test.parquet --out result

    attsvm fit digits --classes 3,8 --out demo/digits-joint

    attsvm fit digits --classes 3,8 --no-train-head --out demo/digits-fixed-head

    attsvm fit problem.npz --no-train-head --steps 200000 --json > result.json

    attsvm fit my_package.data:Sensors --option rate=50 --out sensors
"""

NAMES = {"labels": "label", "options": "option", "seeds": "draws"}


def more_help(arguments: Sequence[str]) -> str:
    """The options of the source before ``--help``, or the names of all sources."""
    if not {"-h", "--help"} & {*arguments}:
        return ""
    from attsvm.datasets import source_help

    if not arguments[0].startswith("-"):
        return f"The source and its options (`--option NAME=VALUE`):\n\n{source_help(arguments[0])}\n"
    return f"The sources; `attsvm fit SOURCE --help` lists the options of one:\n\n{source_help()}\n"


def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            autocompletion=completion.SOURCES,
            help="Name of a data source, a file, or `package.module:name`.",
        ),
    ],
    out: OutFolder = None,
    bag: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of a table with the bag of each row.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column of a table with the label of each bag.")
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of a table with a group; bags of one group are never split between training and test.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out a column of a table. Repeatable.")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Test on these bags.  [default: part of SOURCE]")
    ] = None,
    encoding: Encoding = None,
    fill: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Fill missing numbers of bags with the `mean` or the `median` of their column in the training bags.  "
            "[default: missing numbers are an error]",
        ),
    ] = None,
    option: Annotated[list[str] | None, named_option("source")] = None,
    classes: Annotated[str | None, typer.Option(metavar="A,B", help="Same as `--option classes=A,B`.")] = None,
    train_head: Annotated[
        bool | None,
        typer.Option(
            "--train-head/--no-train-head",
            help="Train the prediction head, too, or only the attention.  [default: train it if the data have none]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Number of steps; if the prediction head is trained, the largest number.  [default: 5,000; 100,000 "
            "for small data with a fixed prediction head]"
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Step size. With a fixed prediction head it grows by 1 % of its initial value per step.  [default: "
            "0.1; 0.01 if the prediction head is trained]"
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="`columns` divides each column of the tokens by its own spread, `common` all columns by one number.  "
            "[default: `columns` if the spreads differ by more than a factor of 10]",
        ),
    ] = None,
    test_fraction: TestFraction = 0.25,
    seed: SplitSeed = 0,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Number of random draws to average over, with seeds from `--seed` on.  [default: 3 for digits]"
        ),
    ] = None,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Train attention on a labelled problem."""
    for given in (source, test or ""):
        if given.lower().endswith(".npz") or is_table_file(given):
            regular_file(given)
    shorthand = [] if classes is None else [f"classes={classes}"]
    options = named_values([*shorthand, *(option or [])])

    from attsvm._fit import BagFit, Fit
    from attsvm._fit import fit as train_and_compare

    run: Run | None = None  # run, done, page: what an interrupted command keeps
    done: Any = None
    page: Page | None = None
    stopped: Interrupted | None = None

    def keep(so_far: "Run | Fit") -> None:
        nonlocal run, done
        run, done = (so_far.run, so_far) if isinstance(so_far, Fit) else (so_far, None)

    if fill is not None and out is not None:
        check_installed("--fill with --out: a model file", "models", "skops")
    with result_folder(out, force, (source, test)) as write:
        try:
            with progress(stops=True) as callback:
                done = train_and_compare(
                    source,
                    labels=label[0] if label and len(label) == 1 else label,
                    bag=bag,
                    groups=groups,
                    drop=drop or (),
                    test=test,
                    encoding=encoding,
                    fill=fill,
                    options=options,
                    train_head=train_head,
                    steps=steps,
                    learning_rate=learning_rate,
                    scale=scale,
                    test_fraction=test_fraction,
                    seed=seed,
                    seeds=draws,
                    device=device,
                    callback=callback,
                    keep=keep,
                )
            about = {"test": test} if isinstance(done, BagFit) else {}
            page = write_page(write, done, threads=threads, **about)
        except Interrupted as interrupted:
            stopped = interrupted
            if done is not None:
                page = write_page(write, done, threads=threads, interrupted=True)
            elif run is not None and write:
                unfinished = run
                write(lambda folder: unfinished.save(folder / "run.npz"))
            else:
                raise
    if page is not None:
        page.show(json)
    if stopped is not None:
        kept = f"run.npz, the run up to step {0 if run is None else int(run.step):,}"
        if done is not None:
            kept = f"the run and {_covered(done)}, without figures" if out else _covered(done)
        on_interruption(lambda: f"{out} holds {kept}" if out else f"the result covers {kept}")
        raise stopped
    assert done is not None
    if isinstance(done, BagFit):
        finish(out, "index.html, figures, result.json and model.npz", exit_status([done.classifier.status_], "run"))
    else:
        _finish(done, out)


def _finish(done: "Fit", out: Path | None) -> None:
    wrote = "interrupted; wrote index.html, result.json and run.npz"
    if done.comparison is not None and done.comparison.interrupted:
        print(f"attsvm: warning: interrupted: the result covers {_covered(done)}", file=sys.stderr)
        finish(out, f"{wrote}; --force starts again from the beginning", INTERRUPTED)
    if out is not None and done.interrupted:
        finish(out, f"{wrote}; --steps {int(done.run.step)} --force adds the figures", INTERRUPTED)
    model = ", run.npz and model.npz" if done.classifier is not None else " and run.npz"
    finish(out, f"index.html, figures, result.json{model}", exit_status([str(done.run.status)], "run"))


def _covered(done: "Fit") -> str:
    comparison = done.comparison
    return "its result" if comparison is None else f"{len(comparison.seeds)} of {comparison.draws} draws"
