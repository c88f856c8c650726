"""``attsvm fit-text``: train an attention classifier on labelled texts."""

from typing import Annotated

import typer

from attsvm.cli import completion
from attsvm.cli.exits import exit_status
from attsvm.cli.options import (
    Device,
    Encoding,
    ForceFolder,
    Json,
    OutFolder,
    Quoting,
    SplitSeed,
    TestFraction,
    Threads,
    TokenizerName,
    named_option,
    named_values,
    option_values,
)
from attsvm.cli.shared import finish, progress, result_folder, write_page
from attsvm.errors import ProblemError

HELP = """
TEXTS is a file `.parquet` (`pip install attsvm[text]`), `.csv`, `.tsv`, `.jsonl` or `.ndjson`, also `.csv.gz`; a folder
of such files or a pattern in quotes; or a folder with one subfolder of text files per label. Word vectors are learnt
from the training texts, and a prompt and a prediction head are trained on them. The result is combined with n-grams if
that is better on held-out training texts. The page and the result compare attention, n-grams, the combination of both,
and the mean of the same word vectors.

For texts without labels, see `attsvm next-token`.

Examples:

    attsvm fit-text reviews.parquet --text text --label label --out reviews

    attsvm fit-text train.csv --test test.csv --option p=1.5 --out reviews

    attsvm fit-text aclImdb/train --test aclImdb/test --json > result.json
"""

NAMES = {"max_steps": "steps"}


def fit_text(
    texts: Annotated[str, typer.Argument(metavar="TEXTS", help="A file of labelled texts, or a folder.")],
    out: OutFolder = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the texts.")] = "text",
    label: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the labels.")] = "label",
    encoding: Encoding = None,
    quoting: Quoting = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL=NAME,...", help="Names of the labels on the page, such as `0=negative,1=positive`."
        ),
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Texts to test on.  [default: part of TEXTS]")
    ] = None,
    parts: Annotated[
        str,
        typer.Option(metavar="PARTS", help="What predicts the label: `attention`, `both` (with n-grams), or `auto`."),
    ] = "auto",
    max_length: Annotated[int, typer.Option(help="Number of words to read from the beginning of each text.")] = 400,
    dim: Annotated[int, typer.Option(help="Length of a word vector.")] = 200,
    min_documents: Annotated[
        int, typer.Option(help="Least number of training texts with a word for it to be in the vocabulary.")
    ] = 5,
    tokenizer: TokenizerName = None,
    embed: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A pretrained transformer; its hidden states replace the word vectors."),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.OPTIMIZERS,
            help="An optimiser from `attsvm train`, or an import path.  "
            "[default: mirror_descent with an option `p`, else adam]",
        ),
    ] = None,
    option: Annotated[list[str] | None, named_option("optimiser: `p` > 1 for mirror descent")] = None,
    steps: Annotated[int | None, typer.Option(help="Largest number of steps.  [default: 5,000]")] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Step size.  [default: 0.003 for adam, 0.1 for mirror_descent, else that of the optimiser]"),
    ] = None,
    test_fraction: TestFraction = 0.25,
    seed: SplitSeed = 0,
    threads: Threads = None,
    device: Device = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Train an attention classifier on labelled texts."""
    options = option_values(option or [])
    if unknown := options.keys() - {"p"}:
        raise ProblemError(f"--option: expected p=VALUE, the only option, got {min(unknown)}")
    names = None if classes is None else named_values(classes.split(","), "--classes", "LABEL=NAME,...")

    with result_folder(out, force, (texts, test, embed)) as write:
        from attsvm._fit import fit_text as train_and_compare
        from attsvm._fit import read_texts
        from attsvm.estimator import FileColumns

        given = read_texts(texts, text, label, names, encoding=encoding, quoting=quoting)
        test_texts = read_texts(test, text, label, encoding=encoding, quoting=quoting) if test else None
        if test_texts and names:
            # a label may be missing among the test texts
            test_texts = test_texts.named({of: name for of, name in names.items() if of in test_texts.classes})
        with progress() as callback:
            done = train_and_compare(
                given,
                test_texts,
                test_fraction=test_fraction,
                seed=seed,
                parts=parts,
                dim=dim,
                min_documents=min_documents,
                max_length=max_length,
                tokenizer=tokenizer,
                embed=embed,
                optimizer=optimizer,
                p=options.get("p"),
                max_steps=steps,
                learning_rate=learning_rate,
                device=device,
                callback=callback,
            )
        done.classifier.file_columns_ = FileColumns(text, label)
        page = write_page(write, done, source=texts, test=test, seed=seed, threads=threads)
    page.show(json)
    finish(
        out,
        f"index.html, figures, result.json{' and model.npz' * bool(page.others)}",
        exit_status([page.numbers["training"]["status"]], "run"),
    )
