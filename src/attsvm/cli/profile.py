"""``attsvm profile``: which norm's margin an optimizer maximises."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.text import visible
from attsvm.cli import completion
from attsvm.cli.optimizer import option_values
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads, named_option
from attsvm.cli.shared import command_line, finish, progress, written
from attsvm.errors import ProblemError

HELP = """
OPTIMIZER is the name of an optimizer of attsvm (`attsvm train --help` lists them), or the import path of a class of
PyTorch optimizers, of an optimizer of optax, or of a function that returns one: `torch.optim.Adam`, `optax.lion`,
`my_package.optimizers:mine`. The problems are trained on the gradient divided by its norm, with learning rates that
are found, or with several schedules of `--learning-rate`, until one gives the answer, and then once on the gradient
itself. The answer is a norm, or says why it is inconclusive. It takes 5 to 30 seconds of processor time for most
optimizers.

`--catalogue` prints what was measured so far of the optimizers of PyTorch, optax and pytorch-optimizer. With `--out`
it measures those that are installed, and continues if DIR has a part of them; it takes some hours.

Examples:

    attsvm profile torch.optim.Adam --out adam

    attsvm profile optax.lion

    attsvm profile --catalogue

    attsvm profile optax.adam --learning-rate 0.01 --batch-size 2

    attsvm profile torch.optim.Muon --learning-rate 0.02 --seeds 4 --steps 4000

    attsvm profile steepest_descent --option norm=linf

    attsvm profile normalized_gradient_descent --seeds 4 --steps 5000 --norm frobenius --norm l1 --norm linf --json
"""


def profile(
    optimizer: Annotated[
        str | None,
        typer.Argument(metavar="[OPTIMIZER]", autocompletion=completion.OPTIMIZERS, help="A name or an import path."),
    ] = None,
    out: OutFolder = None,
    option: Annotated[list[str] | None, named_option("optimizer")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="What four schedules multiply.  [default: found from the change of a logit]")
    ] = None,
    norm: Annotated[
        list[str] | None,
        typer.Option(autocompletion=completion.NORMS, help="A norm to compare. Repeatable.  [default: eleven norms]"),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="Number of problems at most; more than 8 only if intervals of two norms overlap.")
    ] = 20,
    steps: Annotated[int, typer.Option(help="Number of steps with each schedule at most.")] = 20_000,
    batch_size: Annotated[int | None, typer.Option(help="Number of sequences in a step.  [default: all]")] = None,
    attention: Annotated[str | None, typer.Option(help="`combined` (W) or `factored` (K, Q).")] = None,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="Optimizers of PyTorch, optax and pytorch-optimizer.")
    ] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds of processor time for an entry of the catalogue.")] = 120.0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Find the norm whose margin an optimizer maximises."""
    if catalogue:
        others = (optimizer, option, learning_rate, norm, batch_size, attention, device)
        if any(given is not None for given in others):
            raise ProblemError(
                "--catalogue: expected no optimizer, and no option but --out, --seeds, --steps, "
                "--time-limit and --json, got another one"
            )
        _catalogue(out, seeds, steps, time_limit, json)
        return
    if optimizer is None:
        raise ProblemError("OPTIMIZER: expected a name or an import path, or --catalogue, got neither")
    options = option_values(option or [])

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for

    from attsvm.pages.plain import dumps
    from attsvm.pages.profile import profile_page
    from attsvm.profiles import NORMS, import_optimizer, margin_profile

    with written(out, force) as write:
        with progress() as callback:
            found = margin_profile(
                partial(import_optimizer(optimizer), **options) if options else optimizer,
                norms=norm or NORMS,
                seeds=seeds,
                steps=steps,
                batch_size=batch_size,
                learning_rate=learning_rate,
                attention=attention,
                device=device,
                callback=callback,
            )
        page = write(profile_page(found, command=command_line(), threads=threads))
    print(dumps(page.numbers) if json else visible(str(found)))
    finish(out, "index.html, figures, result.json and profile.npz")


def _catalogue(out: Path | None, seeds: int, steps: int, time_limit: float, json: bool) -> None:
    """Print the catalogue of the package, or measure what a folder lacks of one."""
    from attsvm.profiles import catalogue, measure_catalogue

    if out is None:
        found = catalogue()
        print(found.text() if json else f"{found}\n\n{found.extent} `--json` has the reasons of the verdicts.")
        return

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for
    with progress() as callback:
        for entry in measure_catalogue(
            out, command_line(), seeds=seeds, steps=steps, time_limit=time_limit, callback=callback
        ):
            print(entry, flush=True)
    finish(out, "catalogue.json")
