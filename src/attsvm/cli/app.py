"""The command line ``attsvm``. A command's module is imported when the command is called."""

import importlib
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from attsvm._utils.compiled_programs import keep_programs
from attsvm.cli.exits import run_command
from attsvm.cli.messages import with_level
from attsvm.errors import ProblemError

PANELS = {
    "Your data": {
        "fit": "Train attention on labelled data, and compare its weights with the Att-SVM of the tokens it selects.",
        "fit-text": "Train an attention classifier on labelled texts, and compare it with two baselines.",
        "fit-text --task next-token": "Predict which words of a context attention copies, and train it on a corpus.",
        "inspect": "Show what every attention head of a trained transformer selects, and with what margin.",
        "compare": "Show which heads select other tokens in two trained transformers, or over the checkpoints of one.",
        "monitor": "Show what an AttentionMonitor recorded of every head while a model was trained.",
    },
    "Research": {
        "solve": "Solve the Att-SVM of a selection: the weights of smallest norm that select its tokens with margin 1.",
        "train": "Train softmax attention on a problem file, with any optimizer.",
        "profile": "Find the norm whose margin an optimizer of attsvm, optax or PyTorch maximises.",
        "sweep": "Measure many random trials in each cell of a grid, on all cores or a cluster.",
        "sweep show": "Show the result of a sweep: heat maps and curves with intervals, and a table.",
        "reproduce": "Measure the papers' figures and tables again, and report which claims hold.",
        "experiment": "Train a transformer on movie reviews or a ViT on pictures, and compare optimizers.",
        "problem": "Describe a problem file, or write an example.",
    },
    "More": {
        "playground": "Open the interactive page: attention in the plane, its training and its Att-SVM.",
    },
}
"""Every command and its summary by the panel of the help, in its order."""

COMMANDS = {name: summary for commands in PANELS.values() for name, summary in commands.items()}
"""The summaries of all commands.

The command ``fit-text`` is the function ``fit_text`` of the module ``attsvm.cli.fit_text``; ``HELP`` there follows the
summary in ``attsvm fit-text --help``. Commands of several words are found before those of one. The task of
``fit-text --task next-token`` may be anywhere among its arguments; its module is ``attsvm.cli.fit_text_next_token``.
"""

TASK = " --task "

_SETTINGS: dict[str, Any] = {"pretty_exceptions_enable": False, "rich_markup_mode": "markdown"}


class _PlainFlags:
    """A command whose help shows no type beside its flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, with ``--help``."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command whose help shows no type beside its flags."""


class LazyGroup(_PlainFlags, TyperGroup):
    """Commands that are known by name and summary until one of them is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for panel, commands in PANELS.items():
            for name, summary in commands.items():
                self.add_command(TyperCommand(name, short_help=summary, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Find the command that ``args`` begins with, and import its module."""
        name, rest = _with_task(args)
        if name is None and " ".join(args[:2]) in COMMANDS:
            name, rest = " ".join(args[:2]), args[2:]
        if name is not None:
            return name, load_command(name, rest), rest
        found, command, rest = super().resolve_command(ctx, args)
        return found, command if found is None else load_command(found, rest), rest


def _with_task(args: list[str]) -> tuple[str | None, list[str]]:
    """The command of several words that a task chooses, and the other arguments; None if no task is given.

    Raises ProblemError if the command has tasks, and this is none of them.
    """
    tasks = [name.partition(TASK)[2] for name in COMMANDS if args and name.startswith(args[0] + TASK)]
    flat = [part for arg in args for part in (arg.split("=", 1) if arg.startswith("--task=") else [arg])]
    if not tasks or "--task" not in flat:
        return None, args
    at = flat.index("--task")
    given = flat[at + 1] if at + 1 < len(flat) else "nothing"
    if given not in tasks:
        raise ProblemError(f"--task: expected {' or '.join(tasks)}, or no --task to classify texts, got {given}")
    return f"{args[0]}{TASK}{given}", flat[1:at] + flat[at + 2 :]


def attribute_of(name: str) -> str:
    """The name of the module of a command, and of its function.

    Examples
    --------
    >>> from attsvm.cli.app import attribute_of
    >>> attribute_of("sweep show"), attribute_of("fit-text --task next-token")
    ('sweep_show', 'fit_text_next_token')
    """
    return name.replace(TASK, " ").replace("-", "_").replace(" ", "_")


def load_command(name: str, arguments: Sequence[str] = ()) -> Any:
    """Import the module of a command, and return the command.

    ``name``: a name of ``COMMANDS``. ``arguments``: what follows it. The help of a command whose module has a function
    ``more_help`` depends on them.
    """
    attribute = attribute_of(name)
    module = importlib.import_module(f"attsvm.cli.{attribute}")
    text, _, examples = module.HELP.partition("Examples:")
    more = module.more_help(arguments) if hasattr(module, "more_help") else ""
    only = typer.Typer(add_completion=False, **_SETTINGS)
    only.command(name, cls=Command, help=f"{COMMANDS[name]}\n\n{text}{more}", epilog=f"Examples:{examples}")(
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
