"""``attsvm train``: train attention on a problem file, with any optimiser."""

import time
from typing import Annotated

import typer

from attsvm._utils.outputs import check_file
from attsvm.cli import completion
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.optimizer import find_optimizer, optimizer_help
from attsvm.cli.options import Device, ForceFile, Json, OutFile, ProblemFile, Threads, named_option, option_values
from attsvm.cli.shared import announce, command_line, finish, progress
from attsvm.heads import HEADS
from attsvm.losses import LOSSES
from attsvm.training import ATTENTIONS, MAPS


def _names(names: list[str]) -> str:
    return ", ".join([*(f"`{name}`" for name in names), "or `package.module:name`"])


HELP = f"""
PROBLEM is a problem file `.npz` whose names are the arguments of `attsvm.Problem`: tokens, labels, and optionally head,
queries, keys, mask, query_mask, bias_index, offsets. With queries the attention is `combined` (W) or `factored` (K, Q),
otherwise it is a `prompt` (p) or a `key_prompt` (W, p; logits x'Wp). The gradient stays accurate when the softmax is
saturated. Ctrl-C ends training, and the run up to that step is written.

The optimisers and their options are

{optimizer_help()}

`--option NAME=VALUE` sets an option of the optimiser, or one of

- `growth`: multiply the size of step k by 1 + growth·k
- `rank`: the number of columns of K and Q, or of W for `key_prompt`
- `margin_tol`: stop when the margin grows by less than this share while the norm of the weights doubles

`adam` and `muon` are optax's, applied to the normalised gradient.

Examples:

    attsvm train problem.npz --steps 100000 --option growth=0.01 --out run.npz

    attsvm train problem.npz --attention factored --option rank=4 --optimizer muon

    attsvm train prompt.npz --attention key_prompt --seed 1

    attsvm train problem.npz --optimizer mirror_descent --option p=1.75 --json

    attsvm train problem.npz --optimizer steepest_descent --option norm=spectral --option weight_decay=0.1

    attsvm train problem.npz --map sigmoid --predict

    attsvm train problem.npz --optimizer my_package.optimizers:mine --option momentum=0.9

    attsvm train problem.npz --init run.npz --steps 100000 --out longer.npz
"""


def train(
    problem_file: ProblemFile,
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"`{'`, `'.join(ATTENTIONS.names())}`.  [default: combined with queries, else prompt]"
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
    learning_rate: Annotated[float | None, typer.Option(help="Step size.  [default: that of the optimiser]")] = None,
    option: Annotated[list[str] | None, named_option("optimiser, or one of those above")] = None,
    steps: Annotated[int, typer.Option(help="Number of steps.")] = 20_000,
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", autocompletion=completion.LOSSES, help=f"{_names(LOSSES.names())}.  [default: logistic]"
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.HEADS,
            help=f"Prediction head: {_names(HEADS.names())}.  [default: the linear prediction head of the problem]",
        ),
    ] = None,
    train_head: Annotated[
        bool | None, typer.Option("--train-head/--no-train-head", help="Train the prediction head, too.")
    ] = None,
    map: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.MAPS,
            help=f"Map from logits to attention: {_names(MAPS.names())}.  [default: softmax]",
        ),
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="Add PENALTY times the squared norm of the parameters.  [default: 0]")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Number of sequences in a step.  [default: all]")] = None,
    init: Annotated[
        str | None,
        typer.Option(
            metavar="RUN.npz", help="Continue an earlier run, with its loss, head, penalty, batches and seed."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the initial factors, and of mini-batches.  [default: 0]")
    ] = None,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predict the limit of the run, and check the hypotheses of the theorem.")
    ] = False,
    out: OutFile = None,
    force: ForceFile = False,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train softmax attention on a problem file."""
    check_file(out, force, (problem_file, init), ".npz")
    announce(out)
    options = option_values(option or [])
    rank, margin_tol = options.pop("rank", None), options.pop("margin_tol", None)
    chosen = find_optimizer(optimizer, learning_rate, options)

    from attsvm.pages import make_page
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
            map=map,
            penalty=penalty,
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
    prediction = None
    if predict:
        from attsvm.theory import predict_direction

        prediction = predict_direction(problem, run)
    page = make_page(
        run,
        problem=problem,
        prediction=prediction,
        source=problem_file,
        command=command_line(),
        seconds=seconds,
        threads=threads,
    )
    page.show(json)
    statuses = page.numbers["status"]
    if out is not None and Status.INTERRUPTED in statuses:
        finish(out, f"interrupted; wrote the run up to step {run.steps:,}; --init {out} continues it", INTERRUPTED)
    finish(out, "the run", exit_status(statuses, "run" if page.numbers["trials"] == 1 else "trial"))
