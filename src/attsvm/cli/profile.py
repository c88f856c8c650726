"""``attsvm profile``: which norm's margin an optimiser maximises."""

from functools import partial
from textwrap import fill, indent
from typing import Annotated

import typer

from attsvm._utils.text import visible
from attsvm.cli import completion
from attsvm.cli.options import Device, ForceFolder, Json, OutFolder, Threads, named_option, option_values
from attsvm.cli.shared import finish, progress, result_folder, write_page
from attsvm.errors import ProblemError
from attsvm.profiles import SEEDS, STEPS

HELP = """
OPTIMIZER is the name of an optimiser in attsvm (`attsvm train --help` lists them), or the import path of a PyTorch
optimiser class, of an optimiser from optax, or of a function that returns one: `torch.optim.Adam`, `optax.lion`,
`my_package.optimizers:mine`. The optimiser is run on random problems with the gradient divided by its norm. Learning
rates are searched for, or `--learning-rate` is used with several schedules, until one gives an answer; this is then
checked with the gradient itself. The answer is a norm, or the reason why the profile is inconclusive. Most optimisers
take 5 to 30 seconds of processor time.

`--catalogue` prints the results so far for the optimisers of PyTorch, optax and pytorch-optimizer, or the result for
OPTIMIZER and its reason.

Examples:

    attsvm profile torch.optim.Adam --out adam

    attsvm profile optax.lion

    attsvm profile --catalogue

    attsvm profile --catalogue adamw

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
    option: Annotated[list[str] | None, named_option("optimiser")] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Base learning rate of the four schedules.  [default: found from the change of a logit]"),
    ] = None,
    norm: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=completion.NORMS,
            help="A norm to compare. Repeatable.  [default: thirteen norms and that of the optimiser]",
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            help="Largest number of problems; more than 8 are used only if the intervals of two norms overlap."
        ),
    ] = SEEDS,
    steps: Annotated[int, typer.Option(help="Largest number of steps with each schedule.")] = STEPS,
    batch_size: Annotated[int | None, typer.Option(help="Number of sequences in a step.  [default: all]")] = None,
    attention: Annotated[str | None, typer.Option(help="`combined` (W) or `factored` (K, Q).")] = None,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="Print the results for PyTorch, optax and pytorch-optimizer.")
    ] = False,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Find the norm whose margin an optimiser maximises."""
    if catalogue:
        others = (out, option, learning_rate, norm, batch_size, attention, device)
        if any(given is not None for given in others) or (seeds, steps) != (SEEDS, STEPS):
            raise ProblemError(
                "--catalogue: expected no argument or the name of an optimiser, and no option except --json"
            )

        from attsvm.profiles import catalogue as measured

        listed = measured() if optimizer is None else measured().only(optimizer)
        if json:
            print(listed.text())
        elif optimizer is None:
            print(f"{listed}\n\n{listed.extent} `--catalogue OPTIMIZER` and `--json` give the reason for each verdict.")
        else:
            print("\n".join(f"{entry}\n{indent(fill(entry.reason, 96), '    ')}" for entry in listed.entries))
        return
    if optimizer is None:
        raise ProblemError("OPTIMIZER: expected a name or an import path, or the option --catalogue")
    options = option_values(option or [])

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for

    from attsvm.profiles import import_optimizer, margin_profile

    with result_folder(out, force) as write:
        with progress() as callback:
            found = margin_profile(
                partial(import_optimizer(optimizer), **options) if options else optimizer,
                norms=norm or None,
                seeds=seeds,
                steps=steps,
                batch_size=batch_size,
                learning_rate=learning_rate,
                attention=attention,
                device=device,
                callback=callback,
            )
        page = write_page(write, found, threads=threads)
    print(page.json().strip() if json else visible(str(found)))
    finish(out, "index.html, figures, result.json and profile.npz")
