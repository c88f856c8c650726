"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

OutFolder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Folder for page, figures and results.")]
ForceFolder = Annotated[bool, typer.Option("--force", help="Replace DIR if it holds an earlier result.")]

OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the result to this `.npz` file.")]
ForceFile = Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of cores to use at most.  [default: all]")]

SplitSeed = Annotated[int, typer.Option("--seed", help="Seed of the split into training and test.")]
TestFraction = Annotated[float, typer.Option(help="Share of each class that is set apart for testing.")]

ProblemFile = Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem file `.npz`.")]
