"""What turns texts into sequences of tokens."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Int

from attsvm.datasets.sequences import Sequences


class Encoder(Protocol):
    """A map from texts to sequences of vectors."""

    @property
    def tokens(self) -> str:
        """What the tokens are, in the plural."""

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """V words or pieces of words, by index."""

    @property
    def max_length(self) -> int:
        """Largest number of tokens that are kept of a text, from its beginning."""

    @property
    def min_documents(self) -> int | None:
        """Number of training texts that each word occurs in at least; None if the vocabulary is not learnt."""

    def known(self, text: str) -> list[tuple[int, int, int]]:
        """The tokens kept of a text: the index in the vocabulary, and where each begins and ends in the text."""

    def number_cut(self, texts: Sequence[str]) -> int:
        """How many texts have more tokens than are kept."""

    def encode(self, texts: Sequence[str]) -> tuple[Sequences, Int[np.ndarray, " N"]]:
        """Texts as sequences, and the index of each token's word; V for the token of a text without known words."""
