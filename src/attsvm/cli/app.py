"""The command line ``attsvm``. A command's module is imported when the command is called."""

import copy
import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from attsvm._utils.compiled_programs import keep_programs
from attsvm.cli.exits import run_command
from attsvm.cli.messages import with_level

PANELS = {
    "Your data": {
        "fit": "Train attention on labelled data; with a fixed prediction head, compare it with its Att-SVM.",
        "fit-text": "Train an attention classifier on labelled texts, and compare it with two baselines.",
        "predict": "Predict new bags with the model file from a fit, and name the deciding token of each bag.",
        "next-token": "Predict which words of its context attention copies, and compare with attention trained on a "
        "corpus.",
        "inspect": "Show which tokens each attention head of a trained transformer selects, and with what margin.",
        "compare": "Show which attention heads select different tokens in two trained models, or in checkpoints of "
        "one.",
        "monitor": "Show what an AttentionMonitor recorded about each attention head during training.",
    },
    "Research": {
        "solve": "Solve the Att-SVM of a selection: the weights of smallest norm that select its tokens with margin 1.",
        "train": "Train softmax attention on a problem file, with any optimiser.",
        "profile": "Find the norm whose margin an optimiser from attsvm, optax or PyTorch maximises.",
        "sweep": "Measure many random trials in each cell of a grid, on all cores or a cluster.",
        "sweep show": "Show the result of a sweep: heat maps and curves with intervals, and a table.",
        "reproduce": "Measure the figures and tables of the papers again, and report which claims hold.",
        "experiment": "Train a transformer on film reviews or a ViT on pictures, and compare optimisers.",
        "problem": "Describe a problem file, or write an example.",
    },
    "More": {"playground": "Open the interactive page: train attention in the plane, and compare it with its Att-SVM."},
}
"""Every command and its summary by the panel of the help, in its order."""

COMMANDS = {name: summary for commands in PANELS.values() for name, summary in commands.items()}
"""The summaries of all commands.

The command ``fit-text`` is the function ``fit_text`` of the module ``attsvm.cli.fit_text``; ``HELP`` there follows the
summary in ``attsvm fit-text --help``. Commands of several words are found before those of one.
"""

_SETTINGS: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": "markdown"}


class _WideText:
    """A command whose help has one column for names and types of options, and the rest of the width for text."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        shown: Any = copy.copy(self)
        shown.get_params = lambda ctx: [_in_one_column(param, ctx) for param in self.get_params(ctx)]  # type: ignore[attr-defined]
        super(_WideText, shown).format_help(ctx, formatter)  # type: ignore[misc]  # of the command


def _in_one_column(param: Any, ctx: Any) -> Any:
    """A parameter as the help shows it: its names and its type are its only name."""
    if not isinstance(param, TyperOption):
        return param
    shown: Any = copy.copy(param)
    kind = "" if param.is_flag else f" {param.display_type_rich(ctx)}"
    shown.opts, shown.secondary_opts, shown.metavar = [f"{', '.join(sorted(param.opts, key=len))}{kind}"], [], ""
    if param.secondary_opts:
        shown.opts = ["\n".join([*param.opts, *param.secondary_opts])]
        shown.show_default = False
        if param.default is not None:
            own = param.opts if param.default else param.secondary_opts
            shown.help = f"{param.help}  [default: {own[0].removeprefix('--')}]"
    return shown


class PlainCommand(_WideText, TyperCommand):
    """A command whose help gives most of the width to text."""


class LazyGroup(_WideText, TyperGroup):
    """Commands that are known by name and summary until one of them is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for panel, commands in PANELS.items():
            for name, summary in commands.items():
                self.add_command(TyperCommand(name, short_help=summary, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Find the command that ``args`` begins with, and import its module."""
        name, rest = " ".join(args[:2]), args[2:]
        if name in COMMANDS:
            return name, load_command(name, rest), rest
        found, command, rest = super().resolve_command(ctx, args)
        return found, command if found is None else load_command(found, rest), rest


def attribute_of(name: str) -> str:
    """The name of the module of a command, and of its function."""
    return name.replace("-", "_").replace(" ", "_")


def load_command(name: str, arguments: Sequence[str] = ()) -> Any:
    """Import the module of a command, and return the command.

    ``name``: a name of ``COMMANDS``. ``arguments``: what follows it. The help of a command whose module has a function
    ``more_help`` depends on them. ``NAMES`` of the module has the parameters that errors call otherwise.
    """
    attribute = attribute_of(name)
    module = importlib.import_module(f"attsvm.cli.{attribute}")
    text, _, examples = module.HELP.partition("Examples:")
    more = module.more_help(arguments) if hasattr(module, "more_help") else ""
    only = typer.Typer(add_completion=False, **_SETTINGS)
    only.command(name, cls=PlainCommand, help=f"{COMMANDS[name]}\n\n{text}{more}", epilog=f"Examples:{examples}")(
        with_level(getattr(module, attribute), getattr(module, "NAMES", {}))
    )
    return typer.main.get_command(only)


app = typer.Typer(
    name="attsvm",
    cls=LazyGroup,
    help="How training shapes softmax attention: train it, solve its Att-SVM, and compare the two.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_SETTINGS,
)


def run() -> None:
    """Run the command line. An error gives one line on stderr; docs/guide/results.md lists the exit statuses."""
    keep_programs()
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
