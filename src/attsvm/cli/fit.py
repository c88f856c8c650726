"""``attsvm fit``: train attention on a labelled problem, and compare its weights with Att-SVMs."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attsvm.checks import check_integer
from attsvm.cli import completion
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.interrupts import on_interruption
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
from attsvm.cli.shared import command_line, finish, limit_threads, print_result, progress, result_folder
from attsvm.datasets.source import source_help

if TYPE_CHECKING:
    from attsvm.training import Run

MOST_DRAWS = 1000

HELP = f"""
SOURCE is the name of a data source, a file that one of them reads, or an import path `package.module:name` of a
`Source` (see `attsvm.datasets`). The sources and their options (`--option NAME=VALUE`) are

{source_help()}

With queries the attention is combined (W), otherwise it is a prompt (p). If the data have no head, it starts as
logistic regression on the mean token and is trained together with the attention; `--no-train-head` keeps it fixed.
Where a source draws its data and knows which token decides the label, the layer is compared with other classifiers over
several draws. Every accuracy has a 95 % interval; of fewer than 20 sequences the counts are stated.
After Ctrl-C the result covers the steps and draws made until then, and the page has no figures.

Examples:

    attsvm fit digits --classes 3,8 --out demo/digits-joint

    attsvm fit digits --classes 3,8 --no-train-head --out demo/digits-fixed-head

    attsvm fit problem.npz --steps 200000 --json > result.json

    attsvm fit my_package.data:Sensors --option rate=50 --out sensors
"""


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
        typer.Option(help="Number of steps.  [default: 5,000; 100,000 for small data with a fixed head]"),
    ] = None,
    learning_rate: Annotated[
        float, typer.Option(help="Step size. With a fixed head it grows by 1 % of its initial value per step.")
    ] = 0.1,
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
    from attsvm.report.fit.numbers import numbers
    from attsvm.report.fit.words import notes, tables, verdict

    found = find_source(source, options)
    if seeds is not None:
        check_integer("--seeds", seeds, 1, MOST_DRAWS if found.draws > 1 else 1)
    with result_folder(out, force, (source,)) as folder:
        drawing = found.drawing(seed, test_fraction)

        from attsvm.apps.fit.fit import compare_seeds
        from attsvm.apps.fit.fit import fit as train_and_compare
        from attsvm.progress import in_draws

        draws = (seeds or found.draws) if drawing.relevant is not None else 1
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
                keep=partial(_keep, folder, out) if folder and out else None,
            )
            comparison = None
            if drawing.relevant is not None and not done.interrupted:
                comparison = compare_seeds(done, found, seed, draws, device, callback)
        result = numbers(
            done,
            drawing.problem,
            source=source,
            command=command,
            seed=seed,
            threads=threads,
            classes=found.label_names(),
            comparison=comparison,
        )
        if folder:
            from attsvm.report.fit.folder import write_folder

            write_folder(folder, done, result, command, found)
    print_result(result, json, tables(done, result), verdict(done, result), notes(done, result))
    if comparison is not None and comparison.interrupted:
        covered = f"it covers {len(comparison.seeds)} of {draws} draws"
        print(f"attsvm: warning: the comparison is interrupted: {covered}", file=sys.stderr)
        finish(out, "interrupted; wrote index.html, result.json and run.npz; --force starts again", INTERRUPTED)
    if out is not None and done.interrupted:
        steps = int(done.run.step)
        wrote = "interrupted; wrote index.html, result.json and run.npz"
        finish(out, f"{wrote}; --steps {steps} --force adds the figures", INTERRUPTED)
    finish(out, "index.html, figures, result.json and run.npz", exit_status([result["status"]], "run"))


def _keep(folder: Path, out: Path, run: "Run") -> None:
    """Save a run, so that it is kept if there is no time to write the rest after Ctrl-C."""
    from attsvm.temporaries import finish, is_finished, remove_unfinished

    run.save(folder / "run.npz")

    def rescue() -> None:
        remove_unfinished(but=folder)
        if not is_finished(out):
            finish(folder, out.resolve())
        remove_unfinished()

    said = f"the run up to step {int(run.step):,} is in {out / 'run.npz'}"
    on_interruption(lambda: said if is_finished(out) else f"nothing was written to {out}", rescue)
