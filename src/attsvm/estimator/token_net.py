"""A map of tokens before a classifier: a transformer of scikit-learn, or a module of PyTorch."""

import copy
import sys
from typing import Any

import numpy as np
from sklearn.base import clone

from attsvm.datasets import Sequences, map_vectors
from attsvm.errors import ProblemError


def fit_token_net(token_net: Any, sequences: Sequences) -> Any:
    """A copy, fitted to the tokens if it is a transformer; a module is used as it is.

    Raises ProblemError if it is neither.
    """
    if is_module(token_net):
        return copy.deepcopy(token_net).eval()
    if isinstance(token_net, type) or not (hasattr(token_net, "fit") and hasattr(token_net, "transform")):
        raise ProblemError(
            f"token_net: expected a transformer of scikit-learn, a module of PyTorch or None, got {token_net!r}"
        )
    return clone(token_net).fit(sequences.table[np.unique(sequences.ids)])


def through(token_net: Any, sequences: Sequences) -> Sequences:
    """Sequences of mapped tokens; each row of the table that occurs is mapped once."""
    apply = _module_outputs if is_module(token_net) else type(token_net).transform

    # a copy, because some transformers and modules work in place
    table, ids = map_vectors(sequences, lambda vectors: np.asarray(apply(token_net, np.array(vectors))))
    if table.ndim != 2 or len(table) != ids.max() + 1:
        raise ProblemError(f"token_net: expected one vector for each of {ids.max() + 1} tokens, got {table.shape}")
    return Sequences(table.astype(sequences.table.dtype, copy=False), ids, sequences.offsets)


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
