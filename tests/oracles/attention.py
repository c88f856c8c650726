"""Attention by NumPy alone, or by JAX as ``xp``, where nothing is saturated."""

import numpy as np


def softmax(logits, xp=np):
    """Over the last axis; -inf excludes a token."""
    attention = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return attention / attention.sum(axis=-1, keepdims=True)


def attention(problem, weights, xp=np):
    """That of each sequence (n, T) of a problem of one query a sequence, or of a prompt."""
    if problem.queries is None:
        return softmax(problem.tokens @ weights, xp)
    return softmax(xp.einsum("ntd,de,ne->nt", problem.tokens, weights, problem.queries), xp)


def mean_loss(problem, weights, loss="logistic", output=None, xp=np):
    """L(W); ``output`` maps an attended token to the model's output, and is the problem's head by default."""
    pooled = xp.einsum("nt,ntd->nd", attention(problem, weights, xp), problem.tokens)
    outputs = pooled @ problem.head if output is None else np.array([output(o) for o in pooled])
    margins = problem.labels * outputs
    return {"logistic": xp.logaddexp(0, -margins), "exponential": xp.exp(-margins), "linear": -margins}[loss].mean()
