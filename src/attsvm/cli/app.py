"""The command line ``attsvm``. A command's module is imported when the command is called."""

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from attsvm.cli.exits import run_command
from attsvm.cli.interrupts import on_interruption
from attsvm.cli.messages import with_level
from attsvm.temporaries import remove_unfinished

COMMANDS = {
    "fit": "Train attention on a labelled problem, and compare its weights with the Att-SVM of the tokens it selects.",
    "fit-text": "Train an attention classifier on labelled texts, and compare it with two baselines.",
    "problem": "Describe a problem file, or write an example.",
    "solve": "Solve the Att-SVM of a selection: the weights of smallest norm that select its tokens with margin 1.",
    "train": "Train softmax attention on a problem file, with any optimizer.",
    "profile": "Find the norm whose margin an optimizer of attsvm, optax or PyTorch maximises.",
    "inspect": "Show what every attention head of a trained transformer selects, and with what margin.",
    "sweep": "Measure many random trials in each cell of a grid, on all cores or a cluster.",
    "sweep show": "Show the result of a sweep: heat maps and curves with intervals, and a table.",
    "reproduce": "Measure the papers' figures and tables again, and report which claims hold.",
    "experiment": "Train a transformer on movie reviews or a ViT on pictures, and compare optimizers.",
    "playground": "Open the interactive page: attention in the plane, its training and its Att-SVM.",
    "cache": "Show where compiled programs are kept for later processes, or remove them.",
}
"""Every command and its summary, in the order of the help.

The command ``fit-text`` is the function ``fit_text`` of the module ``attsvm.cli.fit_text``; ``HELP`` there follows the
summary in ``attsvm fit-text --help``. The command ``sweep show`` is found by two words, before ``sweep``.
"""

_SETTINGS: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": "markdown"}


class LazyGroup(TyperGroup):
    """Commands that are known by name and summary until one of them is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, summary in COMMANDS.items():
            self.add_command(TyperCommand(name, short_help=summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Find the command that ``args`` begins with, and import its module."""
        two = " ".join(args[:2])
        if len(args) > 1 and two in COMMANDS:
            return two, load_command(two), args[2:]
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else load_command(name), rest


def load_command(name: str) -> Any:
    """Import the module of a command, and return the command.

    Parameters
    ----------
    name : str
        A name of ``COMMANDS``.
    """
    attribute = name.replace("-", "_").replace(" ", "_")
    module = importlib.import_module(f"attsvm.cli.{attribute}")
    text, _, examples = module.HELP.partition("Examples:")
    only = typer.Typer(add_completion=False, **_SETTINGS)
    only.command(name, help=f"{COMMANDS[name]}\n\n{text}", epilog=f"Examples:{examples}")(
        with_level(getattr(module, attribute))
    )
    return typer.main.get_command(only)


app = typer.Typer(
    name="attsvm",
    cls=LazyGroup,
    help="How training shapes softmax attention: its Att-SVM, its training, and how close the two are.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_SETTINGS,
)


def run() -> None:
    """Run the command line. An error gives one line on stderr; docs/guide/results.md lists the exit statuses."""
    on_interruption(cleanup=remove_unfinished)
    run_command(app)


def _print_version(requested: bool) -> None:
    if requested:
        from attsvm._version import __version__

        print(f"attsvm {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass
