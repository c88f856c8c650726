"""``attsvm train``: train attention on a problem file, with any optimizer."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm.cli import completion
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.optimizer import find_optimizer, optimizer_help
from attsvm.cli.options import (
    Device,
    Exponent,
    ForceFile,
    Json,
    OutFile,
    ProblemFile,
    Threads,
    named_option,
    named_values,
)
from attsvm.cli.shared import announce, command_line, finish, limit_threads, progress
from attsvm.heads import HEADS
from attsvm.losses import LOSSES
from attsvm.pages.folder import check_file
from attsvm.pages.terminal import pairs_table
from attsvm.training.attention import ATTENTIONS

if TYPE_CHECKING:
    from attsvm.problem import Problem
    from attsvm.training import Run

SCHEMA = "attsvm.train/1"


def _names(names: list[str]) -> str:
    return ", ".join([*(f"`{name}`" for name in names), "or `package.module:name`"])


HELP = f"""
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens, labels, and optionally head,
queries, keys, mask, query_mask. With queries the attention is `combined` (W) or `factored` (K, Q), otherwise it is a
`prompt` (p) or a `key_prompt` (W, p; logits x'Wp). The softmax gradient is accurate however saturated the softmax is.
Ctrl-C ends training, and the run up to then is written.

The optimizers and their options are

{optimizer_help()}

An option without a name of its own is given by `--option NAME=VALUE`. `adam` and `muon` are those of optax, on the
normalized gradient.

Examples:

    attsvm train problem.npz --steps 100000 --growth 0.01 --out run.npz

    attsvm train problem.npz --attention factored --rank 4 --optimizer muon

    attsvm train prompt.npz --attention key_prompt --seed 1

    attsvm train problem.npz --optimizer mirror_descent --p 1.75 --json

    attsvm train problem.npz --optimizer my_package.optimizers:mine --option momentum=0.9

    attsvm train problem.npz --init run.npz --steps 100000 --out longer.npz
"""


def train(
    problem_file: ProblemFile,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(f'`{name}`' for name in ATTENTIONS)}.  [default: combined with queries, else prompt]",
        ),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.OPTIMIZERS,
            help="See above, or `package.module:name`.  [default: normalized_gradient_descent]",
        ),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size.  [default: the optimizer's]")] = None,
    growth: Annotated[float, typer.Option(help="Multiply the size of step k by 1 + GROWTH·k.")] = 0.0,
    p: Exponent = None,
    option: Annotated[list[str] | None, named_option("optimizer")] = None,
    steps: Annotated[int, typer.Option(help="Number of steps.")] = 20_000,
    loss: Annotated[
        str, typer.Option(metavar="NAME", autocompletion=completion.LOSSES, help=f"{_names(LOSSES.names())}.")
    ] = "logistic",
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.HEADS,
            help=f"{_names(HEADS.names())}.  [default: the linear head of the problem]",
        ),
    ] = None,
    train_head: Annotated[
        bool, typer.Option("--train-head/--no-train-head", help="Train the head together with the attention.")
    ] = False,
    rank: Annotated[int | None, typer.Option(help="Number of columns of K and Q, or of W for key_prompt.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Number of sequences in a step.  [default: all]")] = None,
    margin_tol: Annotated[
        float | None,
        typer.Option(help="Stop when the margin gains less than this share while the norm of the weights doubles."),
    ] = None,
    init: Annotated[str | None, typer.Option(metavar="RUN.npz", help="Continue an earlier run.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial factors, and of mini-batches.")] = 0,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict the limit of the run, with the hypotheses checked.")
    ] = False,
    out: OutFile = None,
    force: ForceFile = False,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train softmax attention on a problem file."""
    limit_threads(threads)
    check_file(out, force, (problem_file, init))
    announce(out)
    named = {"learning_rate": learning_rate, "p": p}
    chosen = find_optimizer(optimizer, named, named_values(option or []), growth)

    from attsvm.pages.plain import dumps
    from attsvm.problem import Problem
    from attsvm.results import Status
    from attsvm.training import Run, Stopping
    from attsvm.training import train as train_attention

    problem = Problem.load(problem_file)
    began = time.perf_counter()
    with progress(stops=True) as callback:
        run = train_attention(
            problem,
            attention=attention,
            optimizer=chosen,
            steps=steps,
            loss=loss,
            head=head,
            train_head=train_head,
            rank=rank,
            batch_size=batch_size,
            stop=Stopping(margin_tol),
            init=None if init is None else Run.load(init),
            seed=seed,
            device=device,
            callback=callback,
        )
    seconds = time.perf_counter() - began
    if out is not None:
        run.save(out)
    result = as_numbers(problem, run, source=problem_file, command=command_line(), seconds=seconds, threads=threads)
    if predict:
        result["prediction"] = _predicted(problem, run)
    if json:
        print(dumps(result))
    else:
        _show(result)
    if out is not None and Status.INTERRUPTED in result["status"]:
        finish(out, f"interrupted; wrote the run up to step {run.steps:,}; --init {out} continues it", INTERRUPTED)
    finish(out, "the run", exit_status(result["status"], "run" if result["trials"] == 1 else "trial"))


def as_numbers(
    problem: "Problem", run: "Run", *, source: str, command: str, seconds: float, threads: int | None
) -> dict[str, Any]:
    """The summary as JSON-able numbers, as documented in docs/guide/results.md."""
    import numpy as np

    from attsvm.norms import Lp
    from attsvm.pages.plain import command_result

    status, counts = np.unique(run.status, return_counts=True)
    counted = np.broadcast_to(problem.canonical.active.reshape(problem.query_shape), run.selected.shape)
    largest = run.probability[counted]
    axes = 2 if problem.has_queries else 1
    single = not run.batch_shape
    precise = np.asarray(-1 if run.precise_until is None else run.precise_until)
    return command_result(
        SCHEMA,
        command,
        {
            "seed": run.seed,
            "threads": threads,
            "data": {"source": source, "sha256": problem.data_hash},
            "attention": run.attention,
            "fixed": list(run.fixed),
            "head": run.head,
            "optimizer": run.optimizer,
            "norm_of_optimizer": None if run.limit.norm is None else run.limit.norm.name,
            "trials": int(np.prod(run.batch_shape, dtype=int)),
            "status": dict(zip(status.tolist(), counts.tolist(), strict=True)),
            "steps": run.steps,
            "loss": np.mean(run.loss),
            "median_largest_probability": np.median(largest),
            "lowest_largest_probability": np.min(largest),
            "weights_norm": np.median(Lp(2.0).values(run.weights, axes)),
            "log_scale": np.median(run.log_scale),
            "trials_past_precision": int((precise >= 0).sum()),
            "precise_until": int(precise[precise >= 0].min()) if (precise >= 0).any() else None,
            "selected": run.selected if single else None,
            "seconds": seconds,
            "prediction": None,
        },
    )


def _predicted(problem: "Problem", run: "Run") -> dict[str, Any]:
    import numpy as np

    from attsvm.theory import predict_direction
    from attsvm.theory.conditions import written_hypotheses

    found = predict_direction(problem, run)
    return {
        "norm": found.norm.name,
        "standing": found.standing.value,
        "source": found.source,
        "distance": None if found.distance is None else np.asarray(found.distance).tolist(),
        "hypotheses": written_hypotheses(found.hypotheses),
    }


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console

    from attsvm.pages.words import number

    states = ", ".join(f"{name}" if result["trials"] == 1 else f"{n} {name}" for name, n in result["status"].items())
    rows = [
        ("status", states),
        ("steps", f"{result['steps']:,}"),
        ("loss" if result["trials"] == 1 else "mean loss", number(result["loss"])),
        ("median largest probability", number(result["median_largest_probability"])),
        ("lowest largest probability", number(result["lowest_largest_probability"])),
        ("norm of the weights", number(result["weights_norm"])),
    ]
    if result["log_scale"]:
        rows.append(("logarithm of a further factor", number(result["log_scale"])))
    if result["selected"] is not None and len(result["selected"]) <= 20:
        rows.append(("selected", " ".join(str(entry) for entry in result["selected"])))
    if result["precise_until"] is not None:
        step = f"{result['precise_until']:,}: rounding affects the run from there on"
        rows.append(("logits passed 1e8 at step", step))
    kept = f", {', '.join(result['fixed'])} fixed" if result["fixed"] else ""
    rows.append(("trained by", f"{result['optimizer']}, {result['attention']} attention{kept}"))
    rows.append(("seconds", f"{result['seconds']:.3g}"))
    if result["prediction"] is not None:
        rows.append((f"predicted, {result['prediction']['standing']}", result["prediction"]["source"]))
        verdicts = {True: "holds", False: "does not hold", None: "not checked"}
        rows += [(verdicts[one["holds"]], one["statement"]) for one in result["prediction"]["hypotheses"]]
    Console().print(pairs_table(rows))
