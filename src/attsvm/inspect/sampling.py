"""Which queries of a batch are inspected."""

import numpy as np
from jaxtyping import Bool, Int

MOST_QUERIES, MOST_PAIRS = 4096, 2**18
"""Default limits for one layer: queries over all sequences, and pairs of a query and a token."""


class Sampler:
    """A choice of queries, which is the same for every layer.

    ``most``: queries over all sequences, spread evenly, at least one for each sequence. None: :data:`MOST_QUERIES`, and
    at most :data:`MOST_PAIRS` pairs of a query and a token. ``num_sequences``: None if all sequences come in one piece.

    ``sampled``: whether a query was left out so far.
    """

    def __init__(self, most: int | None, num_sequences: int | None, seed: int) -> None:
        self.most, self.num_sequences, self.seed = most, num_sequences, seed
        self.sampled = False

    def positions(
        self, is_query: Bool[np.ndarray, "b Q"], num_tokens: int, first_sequence: int
    ) -> Int[np.ndarray, "b q"]:
        """Positions of the chosen queries, and −1 elsewhere.

        If all Q columns fit, a query is in the column of its position; a sample fills columns from the first.

        ``is_query``: False at padding. ``first_sequence``: number of the first of these b sequences in the batch.
        """
        most = self.most or min(MOST_QUERIES, MOST_PAIRS // num_tokens)
        width = min(max(1, most // (self.num_sequences or len(is_query))), is_query.shape[1])
        positions = np.full((len(is_query), width), -1)
        for i, row in enumerate(is_query):
            at = np.flatnonzero(row)
            if len(at) > width:
                self.sampled = True
                generator = np.random.default_rng([self.seed, first_sequence + i])
                at = np.sort(generator.choice(at, width, replace=False))
            positions[i, at if width == len(row) else slice(len(at))] = at
        return positions
