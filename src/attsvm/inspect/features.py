"""Directions of the residual stream with names: vectors of probes, and the features of a sparse autoencoder."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from attsvm._utils.checks import check_integer
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.families.call import as_array
from attsvm.inspect.families.stream import BIASES, Parts, normed
from attsvm.inspect.residual import LogitSplit, split_logits
from attsvm.inspect.weights import Layer, Mask

OTHER = "other features"
"""Origin of all features of a sparse autoencoder that have no origin of their own."""

ERROR = "error"
"""Origin of what a sparse autoencoder leaves of the stream."""

BLOCK = 2**24
"""Pairs of features whose shares are computed at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """The features of a sparse autoencoder of the residual stream: x = Σ_a f_a(x) d_a + b + error.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Parameters
    ----------
    vectors : array or Tensor of shape (k, d)
        The rows d_a of the decoder. They may be linearly dependent.
    encode : callable
        f, from the stream of a sequence, shape (1, T, d), to activations (1, T, k). It is called with a tensor of the
        dtype and on the device of ``vectors``.
    bias : array or Tensor of shape (d,), optional
        b, 0 by default.
    names : sequence of str, optional
        One for each feature, by default "feature 0", "feature 1", ...
    pairs : int
        The features of this many pairs of two features, and of as many pairs of a feature with another origin, are
        origins of their own: those with the largest shares of the decision margin in absolute value, of all pairs. The
        other features together are one origin, "other features".

    Raises
    ------
    ProblemError
        If the shapes do not fit, or names are equal.

    See Also
    --------
    attsvm.inspect.Inspection.explain : Takes them as ``origins``.

    Examples
    --------
    >>> import torch, transformers
    >>> import attsvm.torch
    >>> _ = torch.manual_seed(0)
    >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    >>> model, tokens = transformers.GPT2Model(config), torch.randint(64, (4, 16))
    >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> vectors = torch.randn(128, 32)
    >>> features = attsvm.inspect.Features(vectors, lambda stream: torch.relu(stream @ vectors.T), pairs=2)
    >>> explanation = inspection.explain(1, 0, origins=features)
    >>> [*explanation.groups][0], [*explanation.groups][-3:], round(float(explanation.shares().sum()), 6)
    ('constant', ['other features', 'biases', 'error'], 1.0)
    """

    vectors: Any
    encode: Callable[[Tensor], Tensor]
    bias: Any = None
    names: Sequence[str] | None = None
    pairs: int = 10

    def __post_init__(self) -> None:
        check_integer("pairs", self.pairs, 1)
        vectors = _array(self.vectors)
        if vectors.ndim != 2 or not vectors.size or not np.isfinite(vectors).all():
            raise ProblemError(f"vectors: expected finite vectors of shape (k, d), got shape {vectors.shape}")
        if self.bias is not None and np.shape(self.bias) != vectors.shape[1:]:
            raise ProblemError(f"bias: expected shape {vectors.shape[1:]}, got {tuple(np.shape(self.bias))}")
        if self.names is not None and (isinstance(self.names, str) or len(self.names) != len(vectors)):
            raise ProblemError(f"names: expected {len(vectors)}, one for each vector, got {len(self.names)}")
        if len(set(feature_names(self))) < len(vectors):
            twice = next(name for k, name in enumerate(feature_names(self)) if name in feature_names(self)[:k])
            raise ProblemError(f"names: expected different names, got {twice!r} twice")


@dataclass(frozen=True)
class _PairShares:
    """What a pair of features adds to the decision margins of one head: Σ_m α_a(m) (β_b(α) − β_b(t)) u_a'v_b.

    With the features as the norm reads them, α_a(m) u_a is what feature a adds to the query of decision m, centred, and
    the difference of β_b v_b is what feature b adds to the keys of its selected token and of the runner-up.
    """

    asked: scipy.sparse.csr_array  # α before it is centred, shape (k, decisions)
    mean: Float[np.ndarray, " k"]  # mean of α over all queries
    seen: scipy.sparse.csr_array  # the differences of β, shape (decisions, k)
    queries: Float[np.ndarray, "k d_h"]  # u, times the scale of the logits
    keys: Float[np.ndarray, "k d_h"]  # v
    ends: list[tuple[np.ndarray, np.ndarray]]  # queries, and differences of keys, of the other origins (decisions, d_h)
    scale: float

    @classmethod
    def of(
        cls, split: LogitSplit, layer: Layer, scaled: scipy.sparse.csr_array, read: Float[np.ndarray, "k d"]
    ) -> "_PairShares":
        """Of a split with all features together; ``scaled``: activations times the factor of the norm."""
        there, asks, T = split.selected >= 0, layer.positions >= 0, layer.tokens.shape[1]
        i, q = np.nonzero(there)
        selected, runner_up = split.selected[there], split.runner_up[there]
        places = np.arange(len(layer.tokens))[:, None] * T + layer.positions
        parts, keys = layer.weights(), split.keys
        return cls(
            asked=scaled[places[there]].T.tocsr(),
            mean=scaled[places[asks]].mean(axis=0),
            seen=(scaled[i * T + selected] - scaled[i * T + runner_up]).tocsr(),
            queries=split.scale * read @ parts.query[split.head],
            keys=read @ parts.key[split.head],
            ends=[
                (split.queries[o, i, q], keys[o, i, selected] - keys[o, i, runner_up])
                for o, origin in enumerate(split.origins)
                if origin != OTHER
            ],
            scale=split.scale,
        )

    def rows(self, at: slice) -> Float[np.ndarray, "rows k"]:
        """Margins of pairs of some features in the queries and all in the keys, summed over the decisions."""
        shares = (self.asked[at] @ self.seen).toarray() - np.outer(self.mean[at], self.seen.sum(axis=0))
        return np.asarray(shares * (self.queries[at] @ self.keys.T))

    def with_ends(self) -> Float[np.ndarray, "pairs k"]:
        """Margins of every other origin with each feature in the keys, and of each feature in the queries with it."""
        keys = [self.scale * ((self.seen.T @ of_queries) * self.keys).sum(axis=1) for of_queries, _ in self.ends]
        queries = [
            ((self.asked @ of_keys - np.outer(self.mean, of_keys.sum(axis=0))) * self.queries).sum(axis=1)
            for _, of_keys in self.ends
        ]
        return np.array([*keys, *queries])


def feature_names(features: Features) -> list[str]:
    """The name of every feature."""
    if features.names is not None:
        return list(features.names)
    return [f"feature {k}" for k in range(len(features.vectors))]


def split_by_features(
    features: Features, parts: Parts, norm: nn.Module, layer: Layer, heads: Collection[int], follows: Mask | None
) -> Parts:
    """What the norm of a layer reads, by the features of the largest pairs, all others, the biases and the error.

    ``parts``: the same, split in any way. ``follows``: the pattern of the decisions that count.
    """
    if layer.rotation is not None or layer.given is not None:
        raise ProblemError(
            "origins: features with an encoder need a layer without rotary positions and norms of queries and keys,"
            f" got {layer.name}; give a few of their vectors by name instead, as a mapping"
        )
    stream = sum(parts.values(), torch.zeros(()))
    active, vectors = _activations(features, stream), _array(features.vectors)
    bias = torch.zeros(stream.shape[-1]) if features.bias is None else torch.as_tensor(_array(features.bias))
    rebuilt = torch.as_tensor(active @ vectors).reshape(stream.shape)
    ends = {BIASES: bias.double().expand(stream.shape), ERROR: stream - rebuilt - bias}
    # the norm takes f_a d_a to c f_a g_a: the factor c depends on the token, and the direction g_a on the feature
    read = as_read(norm, vectors)
    at = int(np.linalg.norm(read, axis=1).argmax())
    one = torch.as_tensor(vectors[at])
    factor = normed(norm, {"": one.expand(stream.shape), ERROR: stream - one})[""].numpy() @ read[at]
    scaled = scipy.sparse.diags_array(factor.reshape(-1) / (read[at] @ read[at] or 1.0)) @ active
    whole = normed(norm, {OTHER: rebuilt, **ends})
    sides = [_PairShares.of(split_logits(whole, whole, layer, head, follows), layer, scaled, read) for head in heads]
    chosen, names = largest_pairs(sides, features.pairs), feature_names(features)
    own = {names[a]: torch.as_tensor(active[:, [a]].toarray() * vectors[a]).reshape(stream.shape) for a in chosen}
    return own | {OTHER: rebuilt - sum(own.values())} | ends


def _activations(features: Features, stream: Tensor) -> scipy.sparse.csr_array:
    """The activations (n · T, k) of all tokens."""
    like = features.vectors if isinstance(features.vectors, Tensor) else torch.as_tensor(_array(features.vectors))
    found, shape = [], (1, stream.shape[1], len(like))
    for sequence in stream:
        with torch.no_grad():
            active = features.encode(sequence[None].to(like))
        if not isinstance(active, Tensor) or active.shape != shape or not active.isfinite().all():
            got = tuple(active.shape) if isinstance(active, Tensor) else type(active).__name__
            raise ProblemError(f"encode: expected finite activations of shape {shape}, got {got}")
        found.append(scipy.sparse.csr_array(as_array(active[0])))
    return scipy.sparse.vstack(found, format="csr")


def largest_pairs(sides: list[_PairShares], count: int) -> list[int]:
    """The features of the pairs with the largest margins over all heads in absolute value, block by block.

    ``count``: of the pairs of two features, and of the features with another origin.
    """
    k = len(sides[0].mean)
    step = max(1, BLOCK // k)

    def candidates() -> Iterator[tuple[float, int, int]]:
        for start in range(0, k, step):
            margins = np.abs(sum(one.rows(slice(start, start + step)) for one in sides)).reshape(-1)
            for at in np.argpartition(-margins, min(count, len(margins) - 1))[:count]:
                yield float(margins[at]), start + int(at) // k, int(at) % k

    largest = sorted(candidates(), reverse=True)[:count]
    margins = np.abs(sum(one.with_ends() for one in sides)).max(axis=0)
    return list(dict.fromkeys([*(a for _, *pair in largest for a in pair), *np.argsort(-margins)[:count].tolist()]))


def as_read(norm: nn.Module, vectors: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
    """Directions of the stream as a layer reads them through its norm, all with the same factor."""
    found = torch.as_tensor(vectors)[None]
    token = torch.ones(vectors.shape[1], dtype=torch.float64)
    token[::2] = -1.0  # any token will do: it determines the factor
    read = np.asarray(normed(norm, {"": found, ERROR: token - found})[""][0].numpy())
    # a norm that takes the mean away does not read the vector of ones; what rounding leaves of it is no direction
    return np.where(np.abs(read).max(axis=1) > 1e-12 * np.abs(vectors).max(axis=1), read.T, 0.0).T


def named_vectors(
    origins: "Mapping[str, Any] | Features", size: int, taken: Collection[str] = (), argument: str = "origins"
) -> dict[str, Float[np.ndarray, "k d"]]:
    """The vectors of named directions, of shape (k, d) each; ``size``: d. ``taken``: names of other origins.

    Raises ProblemError if a vector does not fit, or a name cannot be shown or is that of another origin.
    """
    if isinstance(origins, Features):
        given: Mapping[str, Any] = dict(zip(feature_names(origins), _array(origins.vectors), strict=True))
    elif isinstance(origins, Mapping):
        given = origins
    else:
        raise ProblemError(f"{argument}: expected vectors by their names, or Features, got {type(origins).__name__}")
    found = {}
    for name, vectors in given.items():
        found[name] = array = np.atleast_2d(_array(vectors))
        if array.ndim != 2 or array.shape[1] != size or not np.isfinite(array).all():
            raise ProblemError(
                f"{argument}[{name!r}]: expected finite vectors of shape (d,) or (k, d) with d = {size}, got shape"
                f" {np.shape(vectors)}"
            )
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ProblemError(f"{argument}: expected names that can be printed in one line, got {name!r}")
        if name in taken:
            raise ProblemError(f"{argument}: {name!r} is an origin of the model; give it another name")
    return found


def _array(given: Any) -> np.ndarray:
    return as_array(given) if isinstance(given, Tensor) else np.asarray(given, np.float64)
