"""A method of :class:`attsvm.Problem`: keys rotated by the differences of positions.

The logits of rotary attention are then linear in its weights.
"""

from typing import Any, TypeVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem.checks import fit, real

P = TypeVar("P")


def with_rotations(self: P, frequencies: Any, positions: Any = None, query_positions: Any = None) -> P:
    """The problem of attention with rotary position embeddings (RoPE), with the weights of all frequencies.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    RoPE rotates the j-th pair of columns of the projected keys and queries by θ_j times the position. The logits are
    Σ_j Re(e^{iθ_jΔ} x' M_j z), with the position Δ of the query less that of the token and M_j = A_j + iB_j complex.
    They are linear in the weights [A_1; B_1; …; A_J; B_J], with the keys cos(θ_jΔ) x and −sin(θ_jΔ) x.

    Parameters
    ----------
    frequencies : array, shape (J,)
        θ_j, in radians per position: RoPE has 10000^(−j/J) for j = 0, …, J − 1.
    positions : array, shape (T,), (n, T) or (*batch, n, T), optional
        Of the tokens; by default 0, …, T − 1.
    query_positions : array, shape (n,), (n, Q), or with the batch axes, optional
        By default T for one query per sequence, and those of the tokens for Q = T queries. To move all queries by
        the same distance changes no margin in the norm :class:`attsvm.norms.Rotary`.

    Returns
    -------
    Problem
        With keys of dimension 2Jd. Of several queries each has a sequence of its own, because their keys differ:
        there are nQ sequences with one query.

    Raises
    ------
    ProblemError
        If the problem has no queries, or keys of another dimension than its tokens; if the frequencies or the
        positions do not fit, or positions of queries are needed.

    See Also
    --------
    attsvm.train : With ``attention="rotary"``, trains K and Q; by default all weights, without the form of K and Q.
    attsvm.norms.Rotary : The norm of their Att-SVM.

    References
    ----------
    Su, Lu, Pan, Murtadha, Wen and Liu (2024), *RoFormer: Enhanced Transformer with Rotary Position Embedding*,
    equation (16).

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0).with_rotations([1.0, 0.1])
    >>> problem.key_dim
    20
    >>> attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm="rotary2").status
    <Status.OPTIMAL: 'optimal'>
    """
    problem: Any = self
    arrays, batch = problem.arrays(), problem.model_shape
    if "queries" not in arrays:
        raise ProblemError("problem: expected queries, because rotations need their positions")
    keys = arrays.get("keys", arrays["tokens"])
    *_, n, T, d = arrays["tokens"].shape
    if keys.shape[-1] != d:
        raise ProblemError(f"keys: expected d_k = d = {d} for rotations, got d_k = {keys.shape[-1]}")
    frequencies = real("frequencies", frequencies)
    if frequencies.ndim != 1 or not frequencies.size or not np.isfinite(frequencies).all():
        raise ProblemError(f"frequencies: expected finite angles of shape (J,), got shape {frequencies.shape}")
    Q = arrays["queries"].shape[len(batch) + 1 : -1]
    of_tokens = _positions("positions", np.arange(T) if positions is None else positions, batch, [(T,), (n, T)])
    of_tokens = np.broadcast_to(
        of_tokens if of_tokens.ndim > len(batch) + 1 else of_tokens[..., None, :], (*batch, n, T)
    )
    if query_positions is not None:
        of_queries = _positions("query_positions", query_positions, batch, [(n, *Q)])
    elif Q == (T,):
        of_queries = of_tokens
    elif not Q and "mask" not in arrays and positions is None:
        of_queries = np.full((*batch, n), float(T))
    else:
        raise ProblemError(
            f"query_positions: expected shape {(n, *Q)}, got none; only those of one query behind T tokens without a "
            "mask, and of as many queries as tokens, are known"
        )
    # Δ of each query and token, and the blocks cos(θ_jΔ) x and −sin(θ_jΔ) x of each frequency
    apart = of_queries[..., None] - (of_tokens[..., None, :] if Q else of_tokens)
    angles = apart[..., None] * frequencies
    turns = np.stack([np.cos(angles), -np.sin(angles)], axis=-1)
    keys = keys[..., None, :, None, None, :] if Q else keys[..., None, None, :]
    arrays = arrays | {"keys": (turns[..., None] * keys).reshape(*apart.shape, -1)}
    return type(self)(**(_one_query_each(arrays, batch, Q) if Q else arrays))


def _positions(name: str, given: Any, batch: tuple[int, ...], cores: list[tuple[int, ...]]) -> np.ndarray:
    found = fit(name, real(name, given), batch, list(cores), "the problem")
    if not np.isfinite(found).all():
        raise ProblemError(f"{name}: expected finite numbers")
    return found


def _one_query_each(arrays: dict[str, Any], batch: tuple[int, ...], Q: tuple[int, ...]) -> dict[str, Any]:
    """Arrays in which each query has a sequence of its own: keys that differ between queries are no keys of tokens."""
    rows, lead = arrays["tokens"].shape[len(batch)] * Q[0], len(batch)
    per_token = {"tokens", "mask"} if arrays.get("mask", np.empty(0)).ndim == lead + 2 else {"tokens"}
    for name in per_token & set(arrays):
        arrays[name] = np.repeat(arrays[name], Q[0], axis=lead)
    for name in {"labels", "queries", "keys", "mask", "query_mask"} & set(arrays) - per_token:
        arrays[name] = arrays[name].reshape(*batch, rows, *arrays[name].shape[lead + 2 :])
    # a padded query stays one: only problems with an axis of queries have some
    if "query_mask" in arrays:
        for name in {"labels", "queries", "query_mask"} & set(arrays):
            arrays[name] = np.expand_dims(arrays[name], lead + 1)
    return arrays
