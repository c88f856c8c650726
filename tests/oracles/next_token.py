"""Contexts and vocabularies of next-token prediction."""

import numpy as np


def random_contexts(rng, n, length, num_tokens):
    """Contexts of different lengths whose label is among their tokens."""
    contexts = [rng.integers(num_tokens, size=rng.integers(2, length + 1)).tolist() for _ in range(n)]
    return contexts, [int(rng.choice(context)) for context in contexts]


def unit_vectors(rng, count, dim):
    vectors = rng.standard_normal((count, dim))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
