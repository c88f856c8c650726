"""Random instances of next-token prediction at the published sizes, with their graphs."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from attsvm.losses import Loss
from attsvm.next_token import TokenGraph, token_graph
from attsvm.problem import Problem

INNER_PRODUCT = 0.5
"""Of two equicorrelated vectors."""


LOG_LOSS = Loss(lambda m: -jnp.log(m), lambda m: -jnp.log(m), name="log")
"""Of the attention on the label."""


class TokenInstance(NamedTuple):
    """Contexts, the vectors of the tokens, shape (K, d), and the graph."""

    contexts: np.ndarray
    labels: np.ndarray
    vocabulary: np.ndarray
    graph: TokenGraph


def token_instance(rng: np.random.Generator, embedding: str, n: int, T: int, K: int, d: int) -> TokenInstance:
    """Make n contexts of T different tokens of K, with a label among them, and unit vectors in d > K dimensions."""
    contexts = np.stack([rng.permutation(K)[:T] for _ in range(n)])
    labels = rng.permuted(contexts, axis=1)[:, 0]
    draws = rng.standard_normal((d, d))
    rotation = np.linalg.qr(draws)[0]
    vectors = {
        "orthogonal": rotation[:K],
        "equicorrelated": np.sqrt(1 - INNER_PRODUCT) * rotation[:K] + np.sqrt(INNER_PRODUCT) * rotation[K],
        "random": draws[:K],
    }[embedding]
    vocabulary = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return TokenInstance(contexts, labels, vocabulary, token_graph(contexts, labels, num_tokens=K))


def graph_instances(
    embedding: str, n: int, T: int, K: int, d: int, number: int, *, seed: list[int], cyclic: bool, finite: float = 0.0
) -> list[TokenInstance]:
    """Random instances whose graphs are all acyclic, or all cyclic with a finite part of at least a norm."""
    rng = np.random.default_rng(seed)
    found: list[TokenInstance] = []
    while len(found) < number:
        one = token_instance(rng, embedding, n, T, K, d)
        if one.graph.is_cyclic != cyclic:
            continue
        if finite and np.linalg.norm(one.graph.finite_minimiser(one.vocabulary).weights) <= finite:
            continue
        found.append(one)
    return found


def attention_on_label(instances: list[TokenInstance]) -> Problem:
    """The instances as a batch of problems whose output is the attention on the label."""
    contexts = np.stack([one.contexts for one in instances])
    labels = np.stack([one.labels for one in instances])
    keys = np.stack([one.vocabulary[one.contexts] for one in instances])
    values = (contexts == labels[..., None]).astype(float)[..., None]
    return Problem(values, labels=np.ones(labels.shape), queries=keys[:, :, -1], keys=keys, head=np.ones(1))
