"""The tokens of bags that an estimator predicts: what they are called, and which of them decides in each bag."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm.datasets import BagFile


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BagTokens:
    """N tokens of n bags, one of which is named for each bag."""

    names: np.ndarray  # shape (n,)
    offsets: Int[np.ndarray, " n+1"]
    tokens: np.ndarray  # shape (N,), what each is called
    attention: Float[np.ndarray, " N"] | None
    first: Int[np.ndarray, " n"]  # the place of the named token of each bag

    @property
    def selected(self) -> np.ndarray:
        """What the selected token of each bag is called, (n,)."""
        return np.asarray(self.tokens[self.first])

    @property
    def owners(self) -> Int[np.ndarray, " N"]:
        """The bag of each token."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.offsets))

    @property
    def _share(self) -> Float[np.ndarray, " n"] | None:
        return None if self.attention is None else self.attention[self.first]


def token_names(bags: BagFile) -> dict[str, Any]:
    """The names of the bags and of the tokens of a file, and where each bag begins."""
    sequences = bags.sequences
    places = np.arange(len(sequences.ids)) - np.repeat(sequences.offsets[:-1], sequences.lengths)
    return {
        "names": np.arange(len(sequences)) if sequences.names is None else sequences.names,
        "offsets": sequences.offsets,
        "tokens": places if bags.rows is None else bags.rows,
    }


def deciding_tokens(contributions: Float[np.ndarray, " N"], offsets: Int[np.ndarray, " n+1"]) -> Int[np.ndarray, " n"]:
    """The place among all tokens of the largest contribution in each bag, the first one on ties."""
    pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return np.array([begin + int(contributions[begin:end].argmax()) for begin, end in pairs])
