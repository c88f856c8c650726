"""A minimal set of triples that fixes the direction of an Att-SVM."""

import numpy as np
from jaxtyping import Float, Int

DEPENDENT = 1e-12
"""Eigenvalues of the Gram matrix of unit rows at most this, relative to the largest, count as 0."""


def minimal_set(
    differences: Float[np.ndarray, "k d_k"], queries: Float[np.ndarray, "k d_q"], multipliers: Float[np.ndarray, " k"]
) -> Int[np.ndarray, " m"]:
    """Indices of linearly independent rows (x_α − x_t) z' with the same positive combination as all rows.

    Parameters
    ----------
    differences : ndarray, shape (k, d_k)
        x_α − x_t of each row.
    queries : ndarray, shape (k, d_q)
    multipliers : ndarray, shape (k,)
        Positive.

    Notes
    -----
    All rows have margin 1 at the Att-SVM. Therefore the Att-SVM of a subset of rows is the same if and only if it is in
    the cone of the subset. While the rows are linearly dependent, moving the multipliers along a dependence until the
    first one vanishes removes a row (Carathéodory's theorem). The multipliers of independent rows are unique, so none
    of the rows that are left can be removed. There may be other minimal sets.
    """
    norms = np.linalg.norm(differences, axis=1) * np.linalg.norm(queries, axis=1)
    gram = (differences @ differences.T) * (queries @ queries.T) / np.outer(norms, norms)
    values, vectors = np.linalg.eigh(gram)
    dependences = vectors[:, values <= DEPENDENT * values[-1]].T.copy()
    weights = multipliers * norms
    kept = np.ones(len(weights), bool)
    while len(dependences):
        # the dependence with the largest entry in a row that is still there loses least digits in the elimination
        size = np.abs(dependences * kept)
        chosen = int(size.max(axis=1).argmax())
        line = dependences[chosen] * np.sign(dependences[chosen, size[chosen].argmax()])
        falling = kept & (line > 1e-12 * size[chosen].max())
        steps = np.where(falling, weights / np.where(falling, line, 1.0), np.inf)
        out = int(steps.argmin())
        weights = np.where(kept, weights - steps[out] * line, 0.0)
        kept[out] = False
        others = np.delete(dependences, chosen, axis=0)
        dependences = others - np.outer(others[:, out] / line[out], line)
        scale = np.linalg.norm(dependences, axis=1, keepdims=True)
        dependences /= np.where(scale > 0, scale, 1.0)
    return np.flatnonzero(kept)
