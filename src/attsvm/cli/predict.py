"""``attsvm predict``: predict by a model file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from attsvm._utils.files import reason
from attsvm._utils.outputs import check_file
from attsvm.cli.options import Encoding, Json, Threads
from attsvm.cli.shared import announce, command_line, finish
from attsvm.errors import ProblemError

HELP = """
MODEL is a file written by `attsvm fit --out`, `attsvm fit-text --out` or the `save` method of an estimator, such as
`result/model.npz`. DATA has bags in the format of the fit: a table `.csv`, `.tsv`, `.jsonl` or `.parquet` with one row
for each token, or arrays `.npz` or `.json` with the names `tokens` and `mask`, `bag` or `offsets`. For a text
classifier, DATA has texts: a table, or a file `.txt` with one text on each line. If DATA has labels, the predictions
are compared with them.

FILE has one row for each bag: the predicted class, the probability of each class, and the selected token (its row in
the table, counted from 0 below the header). That is the token with the largest contribution to the decision:
contributions of a bag add up to the output of the predicted class, for two classes to its log odds. Its share of the
attention is shown where attention alone decides; a classifier of few bags is an ensemble, which depends on more. For
texts the selected word is the one with the largest attention. A regressor predicts the mean or a quantile of its
target, or a log hazard ratio, and its selected token has the largest contribution by absolute value. Other columns
than those of the fit are refused, and so is a column that is evidently in another unit.

Examples:

    attsvm predict result/model.npz new.csv --out predictions.csv

    attsvm predict result/model.npz new.parquet --instances tokens.csv

    attsvm predict result/model.npz new.npz --json > predictions.json
"""


@contextlib.contextmanager
def _named(model: str, data: str) -> Iterator[None]:
    """Name the files in errors of any kind: what a model file holds is not checked completely when it is loaded."""
    try:
        yield
    except (ProblemError, OSError, MemoryError):
        raise
    except Exception as error:
        raise ProblemError(f"{model}: does not predict {data} ({reason(error)})") from error


NAMES = {"X": "data", "labels": "label", "y": "label"}


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file `.npz`.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Bags: a table, or arrays.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the predictions as CSV.")] = None,
    instances: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the contribution, score and attention of each token as CSV."),
    ] = None,
    bag: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that names the bag of each row.  [default: as in the fit]"),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the texts.  [default: as in the fit]")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of the labels.  [default: as in the fit, if the data have it]"),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Leave out a column of the table. Repeatable.")
    ] = None,
    encoding: Encoding = None,
    any_unit: Annotated[bool, typer.Option("--any-unit", help="Accept numbers outside the ranges of the fit.")] = False,
    threads: Threads = None,
    json: Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Predict by a model file."""
    for option, path in (("--out", out), ("--instances", instances)):
        if path is not None and path.suffix.lower() != ".csv":
            raise ProblemError(f"{option}: expected a file .csv, got {path}")
        check_file(path, force, (model, data))
    if out is not None and out == instances:
        raise ProblemError(f"--instances: expected a file other than that of --out, got {instances}")
    announce(out or instances)

    from attsvm._fit import read_new_texts
    from attsvm.estimator import FileColumns, load_model, predict_bags, read_as_fitted
    from attsvm.pages import make_page
    from attsvm.texts import TextClassifier

    with _named(model, data):
        fitted = load_model(model)
        if any_unit:
            fitted.ranges_ = None
        if isinstance(fitted, TextClassifier):
            for option, value in (("--bag", bag), ("--drop", drop or None), ("--any-unit", any_unit or None)):
                if value is not None:
                    raise ProblemError(f"{option}: not an option for {model}, which classifies texts")
            columns: FileColumns = getattr(fitted, "file_columns_", FileColumns("text", "label"))
            names = text or columns.bag, label or columns.label
            read = read_new_texts(data, *names, required=label is not None, encoding=encoding)
            found, called = fitted.predictions(*read), "text"
        else:
            if text is not None:
                raise ProblemError(f"--text: not an option for {model}, which classifies bags, not texts")
            bags, called = read_as_fitted(fitted, data, bag=bag, label=label, drop=drop or (), encoding=encoding)
            found = predict_bags(fitted, bags)
        page = make_page(
            found,
            model={"source": model, "kind": type(fitted).__name__},
            source=data,
            bag=called,
            command=command_line(),
            threads=threads,
        )
    for path, name in ((out, "predictions.csv"), (instances, "instances.csv")):
        if path is not None:
            page.others[name](path)
    page.show(json)
    finish(out, f"{len(page.numbers['predictions']):,} predictions")
