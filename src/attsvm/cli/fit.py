"""``attsvm fit``: train attention on a labelled problem; with a fixed head, compare its weights with an Att-SVM."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.checks import check_integer
from attsvm._utils.interruption import Interrupted, on_interruption
from attsvm.cli import completion
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.options import (
    Device,
    ForceFolder,
    Json,
    OutFolder,
    SplitSeed,
    TestFraction,
    Threads,
    named_option,
    named_values,
)
from attsvm.cli.shared import command_line, finish, limit_threads, progress, result_folder
from attsvm.datasets.source import source_help
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.apps.fit.comparison import Comparison
    from attsvm.training import Run

MOST_DRAWS = 1000

HELP = """
SOURCE is the name of a data source, a file that one of them reads, or an import path `package.module:name` of a
`Source` (see `attsvm.datasets`).

Labels are -1 and 1, or any two numbers or words. If the data have no head, head and prompt (p) are trained together:
this is `attsvm.AttentionClassifier` with its default settings. `--no-train-head` keeps the head, logistic regression
on the mean token, and trains the attention alone towards its Att-SVM; it predicts less well. With queries the attention
is combined (W). For tables with one row for each token use `attsvm.AttentionClassifier` in Python.

Where a source draws its data and knows which token decides the label, the layer is compared with other classifiers over
several draws. Every accuracy has a 95 % interval; of fewer than 20 sequences the counts are stated.
After Ctrl-C the result covers the steps and draws made until then, and the page has no figures.

Examples:

    attsvm fit digits --classes 3,8 --out demo/digits-joint

    attsvm fit digits --classes 3,8 --no-train-head --out demo/digits-fixed-head

    attsvm fit problem.npz --no-train-head --steps 200000 --json > result.json

    attsvm fit my_package.data:Sensors --option rate=50 --out sensors
"""


def more_help(arguments: Sequence[str]) -> str:
    """The options of the source before ``--help``, or the names of all sources."""
    if arguments and {"-h", "--help"} & {*arguments[1:]}:
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
    option: Annotated[list[str] | None, named_option("source")] = None,
    classes: Annotated[str | None, typer.Option(metavar="A,B", help="Short for `--option classes=A,B`.")] = None,
    train_head: Annotated[
        bool | None,
        typer.Option(
            "--train-head/--no-train-head",
            help="Train the head together with the attention.  [default: only if the data have no head]",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Number of steps, with a trained head at most.  [default: 5,000; 100,000 for small data with a fixed "
            "head]"
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="Step size. With a fixed head it grows by 1 % of its initial value per step.  [default: 0.1; 0.01 for "
            "head and prompt together]"
        ),
    ] = None,
    test_fraction: TestFraction = 0.25,
    seed: SplitSeed = 0,
    seeds: Annotated[
        int | None,
        typer.Option(help="Draws that the comparison is over, from `--seed` on.  [default: 3 for digits]"),
    ] = None,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Train attention on a labelled problem."""
    limit_threads(threads)
    command = command_line()
    shorthand = [] if classes is None else [f"classes={classes}"]
    options = named_values([*shorthand, *(option or [])])

    from attsvm.datasets import find_source
    from attsvm.pages.fit import fit_page
    from attsvm.pages.fit_numbers import numbers, with_comparison

    found = find_source(source, options)
    if seeds is not None:
        check_integer("--seeds", seeds, 1, MOST_DRAWS)
        if seeds > 1 and found.draws == 1:
            raise ProblemError(f"--seeds: expected 1 for {source}, whose data are not drawn at random, got {seeds}")
    with result_folder(out, force, (source,)) as folder:
        drawing = found.drawing(seed, test_fraction)

        from attsvm._utils.progress import in_draws
        from attsvm.apps.fit.fit import compare_seeds
        from attsvm.apps.fit.fit import fit as train_and_compare

        draws = (seeds or found.draws) if drawing.relevant is not None else 1
        result: dict[str, Any] | None = None
        comparison: Comparison | None = None
        holds, stopped = "", None  # what an interrupted command keeps

        def keep_run(run: "Run") -> None:
            nonlocal holds
            if folder:
                run.save(folder / "run.npz")
                holds = f"run.npz, the run up to step {int(run.step):,}"

        def keep_comparison(so_far: "Comparison") -> None:
            nonlocal comparison, holds
            comparison, holds = so_far, _covered(so_far, draws)

        try:
            with progress(stops=True) as callback:
                done = train_and_compare(
                    drawing,
                    train_head=train_head,
                    test_fraction=test_fraction,
                    seed=seed,
                    steps=steps,
                    learning_rate=learning_rate,
                    device=device,
                    callback=in_draws(callback, 0, draws),
                    keep=keep_run,
                )
                alone = numbers(
                    done,
                    drawing.problem,
                    source=source,
                    command=command,
                    seed=seed,
                    threads=threads,
                    classes=found.label_names(),
                )
                result, holds = alone, "its result"
                if drawing.relevant is not None and not done.interrupted:
                    comparison = compare_seeds(done, found, seed, draws, device, callback, keep_comparison)
                    result = with_comparison(alone, comparison)
            if folder:
                fit_page(done, result, found).write(folder)
        except Interrupted as interrupted:
            if not holds:
                raise
            stopped = interrupted
            if result is not None:
                result = {**(with_comparison(alone, comparison) if comparison else alone), "interrupted": True}
                holds = f"the run and {holds}, without figures" if out else holds
                if folder:
                    fit_page(done, result, found).write(folder)
    if result is not None:
        fit_page(done, result, found).show(json)
    if stopped is not None:
        on_interruption(lambda: f"{out} holds {holds}" if out else f"the result covers {holds}")
        raise stopped
    assert result is not None
    wrote = "interrupted; wrote index.html, result.json and run.npz"
    if comparison is not None and comparison.interrupted:
        print(f"attsvm: warning: interrupted: the result covers {_covered(comparison, draws)}", file=sys.stderr)
        finish(out, f"{wrote}; --force starts again", INTERRUPTED)
    if out is not None and done.interrupted:
        finish(out, f"{wrote}; --steps {int(done.run.step)} --force adds the figures", INTERRUPTED)
    finish(out, "index.html, figures, result.json and run.npz", exit_status([result["status"]], "run"))


def _covered(comparison: "Comparison", draws: int) -> str:
    return f"{len(comparison.seeds)} of {draws} draws"
