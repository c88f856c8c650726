"""The tokens, queries and weights of one attention head. Computing its margin does not import PyTorch."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class HeadProblem(NamedTuple):
    """Keys, queries and W of one head; its logits are k_it'W z_iq."""

    # the tokens that enter the layer; with rotary positions, the rotated keys of the head
    keys: Float[np.ndarray, "n T d_k"]
    # the tokens that enter the layer with a constant coordinate 1; with rotary positions, the rotated queries
    queries: Float[np.ndarray, "n Q d_q"]
    weights: Float[np.ndarray, "d_k d_q"]  # W = W_K (W_Q; b_Q)'/√d_h; with rotary positions, I/√d_h

    def logits(self) -> Float[np.ndarray, "n Q T"]:
        # one product for all sequences: BLAS divides each of many small ones between its threads, which takes ten times
        # as long
        rows = self.queries.reshape(-1, self.queries.shape[-1]).astype(self.weights.dtype)
        moved = (rows @ self.weights.T).reshape(*self.queries.shape[:-1], -1)
        logits: np.ndarray = moved @ self.keys.mT.astype(self.weights.dtype)
        return logits
