"""The command line: ``attsvm``."""

import sys
from typing import Annotated, NoReturn

import typer

from attsvm.cli import experiment, fit, inspect, reproduce, solve, train
from attsvm.cli.shared import end_on_termination
from attsvm.errors import ProblemError

BAD_INPUT = 2

app = typer.Typer(
    name="attsvm",
    help="What training does to softmax attention: the Att-SVM a layer converges to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; what a user passed wrongly is one line on stderr and exit status 2."""
    try:
        app()
    except (ProblemError, OSError) as error:
        _fail(error)


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=lambda on: _version(on)),
    ] = False,
) -> None:
    """What training does to softmax attention: the Att-SVM a layer converges to."""
    end_on_termination()


app.command("fit", help=fit.HELP)(fit.fit)
app.command("solve", help=solve.HELP)(solve.solve)
app.command("train", help=train.HELP)(train.train)
app.command("inspect", help=inspect.HELP)(inspect.inspect)
app.command("reproduce", help=reproduce.HELP)(reproduce.reproduce)
app.command("experiment", help=experiment.HELP)(experiment.experiment)


def _version(on: bool) -> None:
    if on:
        from attsvm import __version__

        print(f"attsvm {__version__}")
        raise typer.Exit


def _fail(error: Exception) -> NoReturn:
    message = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    print(f"attsvm: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)
