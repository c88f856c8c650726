"""A map of tokens before a classifier: a transformer of scikit-learn, or a module of PyTorch."""

import contextlib
import copy
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import compress
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_pandas_dataframe, is_polars_dataframe
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import OneHotEncoder

from attsvm._utils.files import reason
from attsvm._utils.memory import free_memory, in_bytes
from attsvm.datasets import Sequences, map_vectors, shown
from attsvm.errors import ProblemError

MOST_WORDS = 100
"""Most words of a column that are categories."""


def _encoder(words: dict[str, tuple[str, ...]]) -> Any:
    """The transformer of tables with words if none is given.

    Raises ProblemError if a column has too many words for categories, or its words are numbers.
    """
    for name, known in words.items():
        others = [word for word in known if not _is_number(word)]
        if 2 * len(others) < len(known):
            besides = f" and {shown(map(repr, others))}" * bool(others)
            raise ProblemError(
                f"X: expected numbers in column {name!r}, got numbers as words{besides}; convert them to numbers, or "
                "pass a token_net that encodes words"
            )
        if len(known) > MOST_WORDS:
            raise ProblemError(
                f"X: expected at most {MOST_WORDS} words in column {name!r}, got {len(known):,}; drop it, or name a "
                f"token_net, such as make_column_transformer((TfidfVectorizer(), {name!r}), remainder='passthrough')"
            )
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_column_transformer((encoder, list(words)), remainder="passthrough", verbose_feature_names_out=False)


def known_words(encoder: Any) -> tuple[list[str], dict[str, list[str | None]]]:
    """The columns of a fitted transformer of tables with words, and the words of some of them; None where missing."""
    of_words = encoder.named_transformers_["onehotencoder"]
    known = zip(of_words.feature_names_in_, of_words.categories_, strict=True)
    words = {str(name): [word if isinstance(word, str) else None for word in found] for name, found in known}
    return [*map(str, encoder.feature_names_in_)], words


def word_encoder(columns: list[str], known: dict[str, list[str | None]]) -> Any:
    """A transformer that is fitted to tables with these words, the inverse of :func:`known_words`."""
    words = {name: tuple(word for word in found if word is not None) for name, found in known.items()}
    table = np.zeros((max(map(len, known.values())), len(columns)))
    for name, found in known.items():
        numbers = [np.nan if word is None else float(words[name].index(word)) for word in found]
        table[:, columns.index(name)] = np.resize(numbers, len(table))
    rows = np.arange(len(table))
    return fit_token_net(None, Sequences(table, rows, np.array([0, len(rows)]), tuple(columns), words))


def _is_number(word: str) -> bool:
    try:
        return bool(np.isfinite(float(word)))
    except ValueError:
        return False


def fit_token_net(token_net: Any, sequences: Sequences, table: Any = None) -> Any:
    """A copy, fitted to the tokens if it is a transformer; a module is used as it is.

    ``token_net``: None for one that encodes words. ``table``: the data frame of the tokens, whose library frames have.

    Raises ProblemError if it is neither.
    """
    if token_net is None:
        token_net = _encoder(sequences.words or {})
    if is_module(token_net):
        return copy.deepcopy(token_net).eval()
    if isinstance(token_net, type) or not (hasattr(token_net, "fit") and hasattr(token_net, "transform")):
        raise ProblemError(
            f"token_net: expected a transformer of scikit-learn, a module of PyTorch or None, got {token_net!r}"
        )
    with _named(sequences.words):
        return clone(token_net).fit(_framed(sequences, sequences.table[np.unique(sequences.ids)], table))


def through(token_net: Any, sequences: Sequences, table: Any = None) -> Sequences:
    """Sequences of mapped tokens; each row of the table that occurs is mapped once."""
    if is_module(token_net) and sequences.words:
        raise ProblemError(
            f"token_net: expected a transformer for the words in column {next(iter(sequences.words))!r}, got a module"
        )

    def apply(vectors: np.ndarray) -> np.ndarray:
        # a copy, because some transformers and modules work in place
        if is_module(token_net):
            return _module_outputs(token_net, np.array(vectors))
        with _named(sequences.words):
            return _dense(type(token_net).transform(token_net, _framed(sequences, np.array(vectors), table)))

    mapped, ids = map_vectors(sequences, apply)
    if mapped.ndim != 2 or len(mapped) != ids.max() + 1:
        raise ProblemError(f"token_net: expected one vector for each of {ids.max() + 1} tokens, got {mapped.shape}")
    with _named(sequences.words):
        return Sequences(mapped.astype(sequences.table.dtype, copy=False), ids, sequences.offsets)


def _framed(sequences: Sequences, vectors: np.ndarray, table: Any) -> Any:
    """Vectors (r, d) of named columns as a data frame, with words for their numbers; others as they are.

    The frame is of polars if the table is, otherwise of pandas if that is installed.
    """
    libraries = ("pandas", "polars")
    own = [is_pandas_dataframe(table), is_polars_dataframe(table)]
    # that of the table, otherwise the first one that is installed
    backend: Any = next(compress(libraries, own), next(filter(find_spec, libraries), None))
    if sequences.columns is None or (backend is None and not sequences.words):
        return vectors
    if backend is None:
        raise ProblemError("X: words in a table need pandas or polars: pip install 'attsvm[frames]'")
    columns: dict[str, Any] = dict(zip(sequences.columns, vectors.T, strict=True))
    for name, words in (sequences.words or {}).items():
        columns[name] = [None if np.isnan(number) else words[int(number)] for number in columns[name]]
    # a column without entries would have no type in polars; in pandas 2 a missing entry would become the word "None"
    cast = [nw.col(name).cast(nw.String) for name in sequences.words or () if backend == "polars"]
    return nw.from_dict(columns, backend=backend).with_columns(cast).to_native()


def _dense(outputs: Any) -> np.ndarray:
    """The outputs of a transformer as an array."""
    if issparse(outputs):
        needed = 8 * int(np.prod(outputs.shape))
        if needed > free_memory() > 0:
            raise ProblemError(
                f"token_net: expected an output that fits into memory, got a sparse one that needs {in_bytes(needed)} "
                "as an array; shorten it, for example by TruncatedSVD"
            )
        return np.asarray(outputs.toarray())
    return np.asarray(outputs)


@contextlib.contextmanager
def _named(words: Any = None) -> Iterator[None]:
    """Name the token_net in errors that it raises; ``words``: the columns that have some."""
    try:
        yield
    except ProblemError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        columns = f"(OneHotEncoder(handle_unknown='ignore'), {[*(words or ())]})"
        way_out = f"; encode the words, as make_column_transformer({columns}, remainder=...) does"
        said = "could not convert string" in str(error) and bool(words)
        raise ProblemError(f"token_net: {reason(error)}{way_out * said}") from error


def is_module(token_net: Any) -> bool:
    """Whether it is a PyTorch module; PyTorch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(token_net, torch.nn.Module)


def _module_outputs(module: Any, tokens: np.ndarray) -> np.ndarray:
    torch = sys.modules["torch"]
    parameter = next(module.parameters(), torch.zeros(()))
    try:
        with torch.no_grad():
            outputs = module(torch.tensor(tokens, dtype=parameter.dtype, device=parameter.device))
    except RuntimeError as error:
        raise ProblemError(
            f"token_net: expected a module that maps tokens of shape {tokens.shape}, got {error}"
        ) from error
    return np.asarray(outputs.cpu())
