"""Models, texts, pictures and checkpoints from where Hugging Face keeps them; what is missing is said in one line."""

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from attsvm.errors import ProblemError
from attsvm.torch.inspection.inspection import SPECIAL

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
TOKENIZER_FILES = ("tokenizer", "vocab", "spiece", "sentencepiece")
"""How their names begin; without any, an empty tokenizer would be made up from the model's class."""

ENOUGH_TOKENS = 100_000
"""A tokenizer that says more knows no limit."""


class Input(NamedTuple):
    """What a model is called with, and what its tokens are called.

    Attributes
    ----------
    batch : dict
    tokens : list of list of str
        Of each sequence, padding included.
    """

    batch: dict[str, torch.Tensor]
    tokens: list[list[str]]


def load_model(name: str) -> nn.Module:
    """A model in float32, from a folder, or by its name where the network allows.

    Raises
    ------
    ProblemError
        If there is none.
    """
    with _quietly() as transformers:
        _check_folder(name)
        try:
            return transformers.AutoModel.from_pretrained(name, dtype=torch.float32).eval()
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            raise ProblemError(f"{name}: no model that can be loaded ({_first_line(error)})") from error


def random_twin(model: Any, seed: int) -> nn.Module:
    """A model of the same shape with weights as they are before training."""
    with _quietly() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AutoModel.from_config(model.config).float().eval()


def read_texts(path: str | Path) -> list[str]:
    """The lines of a text file that are not empty.

    Raises
    ------
    ProblemError
        If there is none, or the file is no text.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path}: not UTF-8 text") from error
    texts = [line.strip() for line in lines if line.strip()]
    if not texts:
        raise ProblemError(f"{path}: empty; a text with one sequence a line wanted")
    return texts


def tokenized(name: str, texts: list[str], model: Any) -> Input:
    """Texts as a model's input, by the tokenizer that lies beside the model.

    Raises
    ------
    ProblemError
        If there is no tokenizer, or a text is longer than the model takes.
    """
    folder = Path(name)
    if folder.is_dir() and not any(path.name.startswith(TOKENIZER_FILES) for path in folder.iterdir()):
        raise ProblemError(f"{name}: no tokenizer beside the model ({'*, '.join(TOKENIZER_FILES)}*)")
    with _quietly() as transformers:
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        except Exception as error:  # whatever a half-written tokenizer makes its reader raise
            raise ProblemError(f"{name}: no tokenizer that can be loaded ({_first_line(error)})") from error
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None and len(texts) > 1:
            raise ProblemError(f"{name}: its tokenizer has no token to pad with; a single text wanted")
        encoded = tokenizer(texts, padding=len(texts) > 1, return_special_tokens_mask=True, return_tensors="pt")
    lengths = encoded["attention_mask"].sum(-1).tolist()
    vocabulary = model.config.vocab_size
    if not lengths or min(lengths) == 0:
        raise ProblemError(f"text {1 + lengths.index(0)}: the tokenizer makes no tokens of it")
    largest = int(encoded["input_ids"].max())
    if largest >= vocabulary:
        raise ProblemError(f"{name}: its tokenizer gives token {largest}, the model knows {vocabulary}")
    longest = max(range(len(texts)), key=lengths.__getitem__)
    most = _most_tokens(model, tokenizer)
    if most is not None and lengths[longest] > most:
        raise ProblemError(f"text {longest + 1}: {lengths[longest]} tokens; the model takes {most}")
    names = [tokenizer.convert_ids_to_tokens(row) for row in encoded["input_ids"].tolist()]
    names = [[_readable(token) for token in row] for row in names]
    batch = {key: encoded[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in encoded}
    special = encoded["special_tokens_mask"] * encoded["attention_mask"]
    if special.any():
        batch[SPECIAL] = special
    return Input(batch, names)


def read_pictures(name: str, folder: str | Path, model: Any) -> Input:
    """The pictures of a folder as a model's input, by the image processor that lies beside the model.

    Raises
    ------
    ProblemError
        If there are no pictures, or no processor.
    """
    from PIL import Image

    paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in PICTURES)
    if not paths:
        raise ProblemError(f"{folder}: no pictures ({', '.join(sorted(PICTURES))})")
    pictures = []
    for path in paths:
        try:
            pictures.append(Image.open(path).convert("RGB"))
        except OSError as error:
            raise ProblemError(f"{path}: not a readable picture") from error
    with _quietly() as transformers:
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(name)
        except Exception as error:  # as for tokenizers
            raise ProblemError(f"{name}: no image processor that can be loaded ({_first_line(error)})") from error
        values = processor(images=pictures, return_tensors="pt")["pixel_values"]
    patch = getattr(model.config, "patch_size", None)
    if not isinstance(patch, int):
        raise ProblemError(f"{name}: {type(model).__name__} found, a model of pictures in patches wanted")
    rows, columns = (size // patch for size in values.shape[-2:])
    tokens = ["[CLS]", *(f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns))]
    return Input({"pixel_values": values}, [tokens] * len(paths))


def checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """The models in the subfolders whose names end with a step, such as checkpoint-500, by their step.

    Raises
    ------
    ProblemError
        If there are none.
    """
    found = []
    for path in Path(folder).iterdir():
        match = re.search(r"(\d+)$", path.name)
        if match and (path / "config.json").is_file():
            found.append((int(match[1]), path))
    if not found:
        raise ProblemError(f"{folder}: no checkpoints; folders with a model whose names end with their step wanted")
    return sorted(found)


@contextlib.contextmanager
def _quietly() -> Iterator[Any]:
    """The transformers package, with nothing of its own on the terminal."""
    try:
        import transformers
        from transformers.utils import logging as theirs
    except ImportError as error:
        raise ProblemError("attsvm inspect needs transformers: pip install 'attsvm[torch]'") from error
    verbosity = theirs.get_verbosity()
    theirs.set_verbosity(logging.CRITICAL)
    theirs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        theirs.set_verbosity(verbosity)
        theirs.enable_progress_bar()


def _check_folder(name: str) -> None:
    path = Path(name)
    if path.is_dir() and not (path / "config.json").is_file():
        raise ProblemError(f"{name}: has no config.json; a folder with a Hugging Face model wanted")
    if path.is_file():
        raise ProblemError(f"{name}: is a file; a folder with a Hugging Face model, or its name, wanted")
    if not path.exists() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ProblemError(f"{name}: no such folder")


def _most_tokens(model: Any, tokenizer: Any) -> int | None:
    """The longest text that a model takes."""
    limits = [tokenizer.model_max_length] if tokenizer.model_max_length < ENOUGH_TOKENS else []
    table = getattr(model.config, "max_position_embeddings", None) or getattr(model.config, "n_positions", None)
    if table is not None:
        # RoBERTa counts its positions from past the padding
        offset = model.config.pad_token_id + 1 if "roberta" in str(model.config.model_type) else 0
        limits.append(table - offset)
    return min(limits, default=None)


def _readable(token: str) -> str:
    """A token without the marks that byte-level and sentence-piece vocabularies put for a space."""
    return token.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "⏎")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(" .:")
