"""The random problems of the papers' experiments."""

from functools import partial

import numpy as np

from attsvm._utils.checks import check_flag, check_integer, check_seed
from attsvm._utils.keywords import suggests
from attsvm._utils.linear_algebra import unit_vectors
from attsvm.errors import ProblemError
from attsvm.problem import Problem


@suggests
def random_problem(
    num_sequences: int = 6,
    num_tokens: int = 8,
    dim: int = 10,
    seed: int = 0,
    *,
    num_queries: int | None = None,
    num_heads: int | None = None,
    key_groups: int | None = None,
    batch: tuple[int, ...] = (),
    prompt: bool = False,
    self_attention: bool = False,
) -> Problem:
    """Draw Gaussian tokens, queries and head, scaled to unit norm, and labels ±1 with equal probability.

    Parameters
    ----------
    num_sequences, num_tokens, dim : int
        n, T and d.
    seed : int
        Seed of NumPy's generator. The same seed gives the same problem on every machine.
    num_queries : int, optional
        Q, the number of queries per sequence. By default there is one query and no query axis.
    num_heads : int, optional
        H, the number of attention heads, each with a head v_h. By default one, without an axis of heads.
    key_groups : int, optional
        The number of groups of attention heads that share their keys, as of :class:`attsvm.Problem`.
    batch : tuple of int, optional
        Shape of the batch axes: independent problems in one object. Each shape has other problems.
    prompt : bool
        Leave out the queries, for prompt attention.
    self_attention : bool
        The queries of a sequence are its first tokens: z = x_1, or z_q = x_q for q = 1..Q. The labels, tokens and head
        are the same as without.

    Returns
    -------
    Problem

    Raises
    ------
    ProblemError
        If a size is not an integer of at least 1, the seed is not an integer of at least 0, or self-attention is
        requested without queries, or with more queries than tokens.

    See Also
    --------
    attsvm.Problem
    attsvm.datasets.signal_noise

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, experiments of section 3.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.datasets.random_problem(3, 4, 5, seed=0)
    Problem(3 sequences × 4 tokens, d = 5; one query per sequence, d_q = 5; labels ±1; head)
    >>> attsvm.datasets.random_problem(3, 4, 5, batch=(2,), prompt=True).batch_shape
    (2,)
    """
    sizes = {"num_sequences": num_sequences, "num_tokens": num_tokens, "dim": dim}
    optional = {name: n for name, n in (("num_queries", num_queries), ("num_heads", num_heads)) if n is not None}
    for name, size in (sizes | optional).items():
        check_integer(name, size, 1)
    if not isinstance(batch, tuple | list):
        raise ProblemError(f"batch: expected a tuple of integers, got {batch!r}")
    for size in batch:
        check_integer("batch", size, 0)
    batch = tuple(batch)
    if check_flag("self_attention", self_attention) and (prompt or (num_queries or 1) > num_tokens):
        found = "a prompt" if prompt else f"{num_queries} queries of {num_tokens} tokens"
        raise ProblemError(f"self_attention: expected at most one query for each token, got {found}")
    generator = np.random.default_rng(check_seed(seed))

    unit = partial(unit_vectors, generator, *batch)
    head = unit(dim) if num_heads is None else unit(num_heads, dim)
    queries_per_sequence = () if num_queries is None else (num_queries,)
    labels = generator.choice([-1.0, 1.0], size=(*batch, num_sequences, *queries_per_sequence))
    tokens = unit(num_sequences, num_tokens, dim)
    queries = None
    if self_attention:
        queries = tokens[..., 0, :] if num_queries is None else tokens[..., :num_queries, :]
    elif not prompt:
        queries = unit(num_sequences, *queries_per_sequence, dim)
    return Problem(tokens, labels=labels, queries=queries, head=head, num_heads=num_heads, key_groups=key_groups)
