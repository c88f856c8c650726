"""Attention by NumPy alone, where nothing is saturated."""

import numpy as np


def softmax(logits):
    """Over the last axis; -inf excludes a token."""
    attention = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return attention / attention.sum(axis=-1, keepdims=True)


def attention(problem, weights):
    """That of each sequence (n, T) of a problem of one query a sequence, or of a prompt."""
    if problem.queries is None:
        return softmax(problem.tokens @ weights)
    return softmax(np.einsum("ntd,de,ne->nt", problem.tokens, weights, problem.queries))


def mean_loss(problem, weights, loss="logistic", output=None):
    """L(W); ``output`` maps an attended token to the model's output, and is the problem's head by default."""
    pooled = np.einsum("nt,ntd->nd", attention(problem, weights), problem.tokens)
    outputs = pooled @ problem.head if output is None else np.array([output(o) for o in pooled])
    margins = problem.labels * outputs
    return {"logistic": np.logaddexp(0, -margins), "exponential": np.exp(-margins), "linear": -margins}[loss].mean()
