"""``attsvm next-token``: the priority graphs of a corpus, and attention that is trained on them."""

from typing import Annotated

import typer

from attsvm.cli.exits import exit_status
from attsvm.cli.options import Encoding, ForceFolder, Json, OutFolder, Quoting, Threads, TokenizerName
from attsvm.cli.shared import finish, progress, result_folder, write_page

HELP = """
CORPUS is a file `.txt` or `.txt.gz` with one text per line; a table `.parquet` (`pip install attsvm[text]`), `.csv`,
`.tsv`, `.jsonl` or `.ndjson` with a column of texts; or a folder of such files, or a pattern in quotes. For each of the
most frequent last words, the graph of its contexts predicts which words attention copies. Attention is then trained on
the same contexts. The page and the result compare the prediction with the trained attention, on other texts.

Examples:

    attsvm next-token corpus.txt --out next

    attsvm next-token reviews.parquet --text text --words 12 --out next

    attsvm next-token corpus.txt --dim 50 --json > result.json
"""


def next_token(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A file of texts; labels are not needed.")],
    out: OutFolder = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the texts in a table.")] = "text",
    encoding: Encoding = None,
    quoting: Quoting = None,
    tokenizer: TokenizerName = None,
    vocabulary: Annotated[
        int, typer.Option(help="Size of the vocabulary; all less frequent words become one symbol.")
    ] = 200,
    words: Annotated[int, typer.Option(help="Number of last words to show; the most frequent ones are chosen.")] = 8,
    length: Annotated[int, typer.Option(help="Number of words in the longest context.")] = 32,
    contexts: Annotated[int, typer.Option(help="Largest number of training contexts for each last word.")] = 4000,
    dim: Annotated[
        int | None,
        typer.Option(help="Dimension of word vectors learnt from the corpus.  [default: orthonormal vectors]"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of steps of gradient descent with momentum.")] = 2000,
    learning_rate: Annotated[float, typer.Option(help="Step size.")] = 0.5,
    test_fraction: Annotated[float, typer.Option(help="Share of the texts to set apart for testing.")] = 0.25,
    seed: Annotated[int, typer.Option(help="Seed of the split, and of the choice of contexts.")] = 0,
    threads: Threads = None,
    json: Json = False,
    force: ForceFolder = False,
) -> None:
    """Predict which words of a context attention copies."""
    from attsvm.results import Status

    with result_folder(out, force, (corpus,)) as write:
        from attsvm._fit import NextWordOptions, fit_next_words, read_corpus

        options = NextWordOptions(
            vocabulary=vocabulary,
            words=words,
            length=length,
            contexts=contexts,
            dim=dim,
            steps=steps,
            learning_rate=learning_rate,
            test_fraction=test_fraction,
            seed=seed,
            tokenizer=tokenizer,
        )
        texts = read_corpus(corpus, text, options.tokenizer, encoding=encoding, quoting=quoting)
        with progress("last words") as callback:
            done = fit_next_words(texts, options, callback=callback)
        page = write_page(write, done, source=corpus, threads=threads)
    page.show(json)
    statuses = [word["status"] for word in page.numbers["last_words"] if word["status"] != Status.INFEASIBLE]
    finish(out, "index.html and result.json", exit_status(statuses, "graph-SVM"))
