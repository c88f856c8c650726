"""``attsvm train``: attention on a problem file, by any optimiser."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli.files import check_writable
from attsvm.cli.shared import INTERRUPTED, command_line, limit_threads, progress
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.problem import Problem
    from attsvm.training import Run

SCHEMA = "attsvm.train/1"

HELP = """
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens, labels, head and, where
there are, queries, keys, mask, query_mask. With queries the attention is `combined` (W) or `factored` (K, Q), else a
`prompt` (p). The gradient keeps its digits however saturated the softmax is. Ctrl-C keeps what there is.

Optimisers: `normalized_gradient_descent`, `gradient_descent`, `polyak`, `mirror_descent` (with `--p`),
`steepest_descent` (with `--norm`: linf is sign descent, l1 coordinate descent, or spectral), `adam`, `muon` (the last
two on the normalised gradient).

Examples:

    attsvm train problem.npz --steps 100000 --growth 0.01 --out run.npz

    attsvm train problem.npz --attention factored --rank 4 --optimizer normalized_gradient_descent --relative

    attsvm train problem.npz --optimizer mirror_descent --p 1.75 --json

    attsvm train problem.npz --init run.npz --steps 100000 --out longer.npz
"""

OPTIMIZER_HELP = "By default normalized gradient descent. `package.module:function` is read, too."
LOSS_HELP = "`logistic`, `exponential`, `linear`, `cross_entropy`, or `package.module:object`."
HEAD_HELP = "A head of `attsvm.heads`, or `package.module:object`.  [default: linear, the problem's]"


class Attention(StrEnum):
    """How logits depend on the weights."""

    COMBINED = "combined"
    FACTORED = "factored"
    PROMPT = "prompt"


def train(
    problem_file: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem file `.npz`.")],
    attention: Annotated[Attention | None, typer.Option(help="By default combined with queries, else prompt.")] = None,
    optimizer: Annotated[str | None, typer.Option(metavar="NAME", help=OPTIMIZER_HELP)] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size.  [default: the optimiser's]")] = None,
    growth: Annotated[float, typer.Option(help="Step k is 1 + GROWTH·k times as long.")] = 0.0,
    p: Annotated[float | None, typer.Option(help="Of mirror descent, p > 1.")] = None,
    norm: Annotated[
        str | None, typer.Option(help="Of steepest descent: `linf`, `l1`, `spectral`, `frobenius`.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="One norm over `all` parameters, or one for `each`.")] = None,
    relative: Annotated[bool, typer.Option("--relative", help="Steps relative to the weights' norm.")] = False,
    steps: Annotated[int, typer.Option(help="Updates to make.")] = 2000,
    loss: Annotated[str, typer.Option(help=LOSS_HELP)] = "logistic",
    head: Annotated[str | None, typer.Option(metavar="NAME", help=HEAD_HELP)] = None,
    train_head: Annotated[bool, typer.Option("--train-head", help="Train the head too, from the file's.")] = False,
    rank: Annotated[int | None, typer.Option(help="Columns of K and Q.")] = None,
    penalty: Annotated[float, typer.Option(help="Adds PENALTY times the squared norm of the parameters.")] = 0.0,
    batch_size: Annotated[int | None, typer.Option(help="Sequences of a step.  [default: all]")] = None,
    margin_tol: Annotated[
        float | None, typer.Option(help="End where the margin gains less while the weights' norm doubles.")
    ] = None,
    gradient_tol: Annotated[float | None, typer.Option(help="End where the gradient is no longer than this.")] = None,
    init: Annotated[str | None, typer.Option(metavar="RUN.npz", help="Go on from an earlier run.")] = None,
    seed: Annotated[int, typer.Option(help="Of K and Q at the start, and of mini-batches.")] = 0,
    record: Annotated[int | None, typer.Option(help="Log-spaced records of the history.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the run, an `.npz`.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
    threads: Annotated[int | None, typer.Option(help="Cores to use at most.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON on stdout.")] = False,
) -> None:
    """Train softmax attention on a problem file (the help is HELP)."""
    limit_threads(threads)
    if out is not None:
        check_writable(out, force)
    chosen = _optimizer(optimizer, learning_rate, growth, p=p, norm=norm, scope=scope, relative=relative)

    import time

    from rich.console import Console

    from attsvm.problem import Problem
    from attsvm.report.plain import dumps
    from attsvm.training import Run
    from attsvm.training import train as train_attention

    problem = Problem.load(problem_file)
    began = time.perf_counter()
    with progress() as callback:
        run = train_attention(
            problem,
            attention=None if attention is None else attention.value,
            optimizer=chosen,
            steps=steps,
            loss=loss,
            head=head,
            train_head=train_head,
            rank=rank,
            penalty=penalty,
            batch_size=batch_size,
            margin_tol=margin_tol,
            gradient_tol=gradient_tol,
            init=None if init is None else Run.load(init),
            seed=seed,
            record=record,
            callback=callback,
        )
    seconds = time.perf_counter() - began
    if out is not None:
        run.save(out)
    result = as_numbers(problem, run, source=problem_file, command=command_line(), seconds=seconds, threads=threads)
    if json:
        print(dumps(result))
    else:
        _show(Console(), result)
    if out is not None:
        print(f"{out}: the run", file=sys.stderr)
    if "interrupted" in result["status"]:
        raise typer.Exit(INTERRUPTED)


def as_numbers(
    problem: "Problem", run: "Run", *, source: str, command: str, seconds: float, threads: int | None
) -> dict[str, Any]:
    """The summary as JSON-able numbers, as documented in docs/guide/results.md."""
    import numpy as np

    from attsvm._version import __version__
    from attsvm.norms import Lp
    from attsvm.report.plain import jsonable

    status, counts = np.unique(run.status, return_counts=True)
    counted = np.broadcast_to(problem.canonical.active.reshape(problem.query_shape), run.selected.shape)
    largest = run.probability[counted]
    axes = 2 if problem.has_queries else 1
    single = not run.batch_shape
    precise = np.asarray(-1 if run.precise_until is None else run.precise_until)
    return jsonable(
        {
            "schema": SCHEMA,
            "version": __version__,
            "command": command,
            "seed": run.seed,
            "threads": threads,
            "data": {"source": source, "sha256": problem.data_hash},
            "attention": run.attention,
            "head": run.head,
            "optimizer": run.optimizer,
            "norm_of_optimizer": None if run.norm is None else run.norm.name,
            "trials": int(np.prod(run.batch_shape, dtype=int)),
            "status": dict(zip(status.tolist(), counts.tolist(), strict=True)),
            "steps": run.steps,
            "loss": np.mean(run.loss),
            "median_largest_probability": np.median(largest),
            "lowest_largest_probability": np.min(largest),
            "weights_norm": np.median(Lp(2.0).values(run.weights, axes)),
            "trials_past_precision": int((precise >= 0).sum()),
            "precise_until": int(precise[precise >= 0].min()) if (precise >= 0).any() else None,
            "selected": run.selected if single else None,
            "seconds": seconds,
        }
    )


def _optimizer(name: str | None, learning_rate: float | None, growth: float, **options: Any) -> Any:
    """The optimizer of this name and options; None leaves the choice to the attention."""
    from attsvm.optimizers import optimizer_options, parse_optimizer

    if not growth >= 0:
        raise ProblemError(f"--growth: expected a number >= 0, got {growth:g}")
    given = {option: value for option, value in options.items() if value not in (None, False)}
    if name is None and learning_rate is None and not growth and not given:
        return None
    name = "normalized_gradient_descent" if name is None else name
    known = optimizer_options(name)
    if learning_rate is not None:
        given["learning_rate"] = learning_rate
    if growth:
        rate: float = given.get("learning_rate", getattr(known.get("learning_rate"), "default", 0.1))
        if not rate > 0:
            raise ProblemError(f"--learning-rate: expected a positive number, got {rate:g}")
        given["learning_rate"] = lambda step: rate * (1 + growth * step)
    for option in given:
        if option not in known:
            raise ProblemError(f"--{option.replace('_', '-')}: not an option of {name}")
    for option, parameter in known.items():
        if parameter.default is parameter.empty and option not in given:
            raise ProblemError(f"--{option.replace('_', '-')}: not given, but {name} needs it")
    return parse_optimizer(name, **given)


def _show(console: Any, result: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    from attsvm.report.words import number

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    states = ", ".join(f"{name}" if result["trials"] == 1 else f"{n} {name}" for name, n in result["status"].items())
    table.add_row("status", states)
    table.add_row("steps", f"{result['steps']:,}")
    table.add_row("loss" if result["trials"] == 1 else "mean loss", number(result["loss"]))
    table.add_row("median largest probability", number(result["median_largest_probability"]))
    table.add_row("lowest largest probability", number(result["lowest_largest_probability"]))
    table.add_row("norm of the weights", number(result["weights_norm"]))
    if result["selected"] is not None and len(result["selected"]) <= 20:
        table.add_row("selected", " ".join(str(entry) for entry in result["selected"]))
    if result["precise_until"] is not None:
        table.add_row("logits passed 1e8 at step", f"{result['precise_until']:,}: from there on their rounding shows")
    table.add_row("trained by", f"{result['optimizer']}, {result['attention']} attention")
    table.add_row("seconds", f"{result['seconds']:.3g}")
    console.print(table)
