"""Why heads attend where they do: their logits split by origin in the residual stream."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm._utils.checks import check_flag, check_integer
from attsvm._utils.progress import shown
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.causal import CONTROLS, DRAWS, CausalTest, Reason, Running
from attsvm.inspect.families.call import as_array
from attsvm.inspect.families.stream import CONSTANT, Parts
from attsvm.inspect.residual import LogitSplit, Residual, pattern_of, residual_stream, split_logits, steps_to
from attsvm.inspect.weights import Layer

STREAM_ERROR = 1e-3
"""Largest difference between the stream and the sum of its parts, relative to the largest entry of the stream."""


class OriginPair(NamedTuple):
    """A part of a decision: what the queries are made from, what the keys are made from, and how much it explains."""

    # query, key: names of groups of origins; see :attr:`Explanation.groups`
    query: str
    key: str
    share: float  # of the decision margin. Shares are signed and may exceed 1; those of all pairs add up to 1.

    def __str__(self) -> str:
        return f"queries from {self.query}, keys from {self.key}: {self.share:+z.3f} of the margin"


class MarginTerms(NamedTuple):
    """Shares of the decision margin, which add up to 1."""

    constant_query: float  # of the mean query with what varies among the keys: every query prefers the same keys
    interaction: float  # of what varies among the queries with what varies among the keys
    # constant_key, constants: of the mean key with what varies among the queries, and with the mean query. The mean key
    # adds the same number to all logits of a query, so both are 0, except with rotary positions, which make them depend
    # on the distance.
    constant_key: float
    constants: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The decisions of heads of one layer, by origin of their queries and keys in the residual stream.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    layer : int
    heads : tuple of int
    splits : list of LogitSplit
        One for each head.
    groups : dict of str to list of str
        Origins by group; the first is "constant". Earlier heads of one named set, such as "previous token heads", are
        one group; every other origin is its own.
    pattern : str or None
        The pattern of the decisions, such as "induction"; see :meth:`attsvm.inspect.Inspection.explain`.
    source : Source
        The model and the batch.
    features : tuple of str
        The origins that were given by their vectors.

    See Also
    --------
    attsvm.inspect.Inspection.explain : Makes one.

    Notes
    -----
    The layer reads a sum of parts through its norm. At its actual scale the norm is linear, so that queries and keys
    are sums of one vector for each origin, and a logit is the sum over pairs of origins. Norms of the stream itself, as
    in BERT, are linear at their actual scale, too. The parts add up to the logits exactly. The scale of a norm depends
    on all origins; :meth:`test` therefore computes it again.

    An origin can add nearly the same vector to every query, as the mean of the positions. Such constants say nothing
    about one query, and those of several origins may cancel. They are therefore one group, "constant": the mean over
    all queries, and the mean over all keys. What the other groups have is centred. A constant query prefers some keys
    to others; a constant key adds the same number to all logits of a query and changes nothing, unless positions are
    rotary.

    References
    ----------
    Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*.

    Examples
    --------
    >>> import torch, transformers
    >>> import attsvm.torch
    >>> _ = torch.manual_seed(0)
    >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    >>> model, tokens = transformers.GPT2Model(config).double(), torch.randint(64, (4, 16))
    >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> explanation = inspection.explain(1, [0])
    >>> explanation.error < 1e-12
    True
    >>> best, shares = explanation.pairs(1)[0], explanation.shares()
    >>> best.query in explanation.groups, bool(best.share == shares.max()), round(float(shares.sum()), 6)
    (True, True, 1.0)
    >>> round(sum(pair.share for pair in explanation.pairs(most=None)), 6)
    1.0
    >>> terms = explanation.terms()
    >>> round(terms.constant_query + terms.interaction, 6), abs(terms.constant_key + terms.constants) < 1e-12
    (1.0, True)
    """

    layer: int
    heads: tuple[int, ...]
    splits: list[LogitSplit]
    groups: dict[str, list[str]]
    pattern: str | None
    source: ModelAndBatch
    features: tuple[str, ...] = ()

    def __repr__(self) -> str:
        heads = ", ".join(f"{self.layer}.{head}" for head in self.heads)
        terms = ", ".join(f"{name} {share:+z.3f}" for name, share in self.terms()._asdict().items())
        lines = [
            f"Explanation(head{'s' * (len(self.heads) > 1)} {heads}: mean margin {self.margin:z.3g}; {terms})",
            *(f"  {pair}" for pair in self.pairs(5)),
        ]
        return "\n".join(lines)

    @property
    def error(self) -> float:
        """Largest difference between the sum of all parts and the logits, over the heads."""
        return max(split.error for split in self.splits)

    @property
    def margin(self) -> float:
        """Mean decision margin over the heads and their queries."""
        return float(np.concatenate([split.margins().sum(axis=(0, 1)) for split in self.splits]).mean())

    def shares(self) -> Float[np.ndarray, "groups groups"]:
        """Share of the decision margin of each pair of groups: of the queries first, then of the keys.

        Margins are summed over the queries and the heads. Shares are signed and may exceed 1; they add up to 1.
        """
        origins = self.splits[0].origins
        total = np.sum([split.margins().sum(axis=-1) for split in self.splits], axis=0)
        member = np.array([[origin in of_group for origin in origins] for of_group in self.groups.values()], float)
        shares: np.ndarray = member @ total @ member.T / total.sum()
        return shares

    def terms(self) -> MarginTerms:
        """Share of the decision margin by what varies: keys alone, queries and keys, queries alone, or nothing."""
        shares = self.shares()
        sums = shares[0, 1:].sum(), shares[1:, 1:].sum(), shares[1:, 0].sum(), shares[0, 0]
        return MarginTerms(*(float(share) for share in sums))

    def pairs(self, most: int | None = 10) -> list[OriginPair]:
        """The pairs of groups with the largest shares in absolute value.

        Parameters
        ----------
        most : int, optional
            At most this many; None for all.
        """
        if most is not None:
            check_integer("most", most, 1)
        shares, names = self.shares(), list(self.groups)
        order = np.argsort(-np.abs(shares), axis=None, kind="stable")[:most]
        places = (np.unravel_index(at, shares.shape) for at in order)
        return [OriginPair(names[a], names[b], float(shares[a, b])) for a, b in places]

    def test(
        self,
        batch: Any,
        query: str | None = None,
        key: str | None = None,
        *,
        controls: int = CONTROLS,
        draws: int = DRAWS,
        seed: int = 0,
        progress: bool = False,
    ) -> CausalTest:
        """Test on other sequences whether a reason is sufficient and necessary.

        The queries of the heads are made from the origins ``query`` and their keys from the origins ``key`` of each
        token itself, and from all other origins of random tokens of the batch (sufficiency); or these origins are of
        random tokens, first in the queries and then in the keys (necessity). All norms are computed again. Both are
        divided by the effect of taking all origins from random tokens. The score is the mean attention to the selected
        token; with a pattern, to the tokens of the pattern, for the queries that select one. Scores are means over
        several draws of the random tokens, with intervals; where these do not decide, the verdict is "undecided".

        Parameters
        ----------
        batch : mapping, tuple or Tensor
            Arguments of the model, as for an inspection, for sequences that it was not explained on.
        query, key : str, optional
            Groups of origins, of ``groups``. By default those of the pair with the largest share. With "constant" the
            queries are their mean over the batch, or the keys; there is nothing of them that could be necessary.
        controls : int
            Number of random reasons of equal size that share no origin with this one on the same side. Where
            few origins are left, some occur several times, or are smaller.
        draws : int
            Number of resamplings, at least 2; the same ones for the reason and its controls.
        seed : int
            Of the resampling and the controls.
        progress : bool
            Show the progress, as :func:`attsvm.train` does.

        Returns
        -------
        CausalTest

        Raises
        ------
        ProblemError
            If there are no such groups, the explanation has origins that were given by vectors, or resampling
            everything lowers the score by less than 5 %, as for heads that attend evenly, or by rotary positions alone.

        Examples
        --------
        >>> import torch, transformers
        >>> import attsvm.torch
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5)
        >>> model, tokens = transformers.GPT2Model(config), torch.randint(64, (16, 16))
        >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens[:8]}, margins=False)
        >>> test = inspection.explain(1, 0).test({"input_ids": tokens[8:]}, controls=2)
        >>> test.control_necessity.shape, test.verdict in ("passed", "failed", "undecided")
        ((2, 10), True)
        """
        if self.features:
            raise ProblemError(
                "origins: expected an explanation by parts of the model, which can be resampled, got"
                f" {self.features[0]!r}"
            )
        if query is None or key is None:
            best = self.pairs(1)[0]
            query, key = query or best.query, key or best.key
        check_flag("progress", progress)
        reason = reason_of(self, query, key)
        source = ModelAndBatch.whole(self.source.model, batch, self.source.layers)
        running = Running.of(source, self.layer, self.heads, self.pattern, seed, draws)
        with shown(progress, "causal test") as callback:
            return running.test(reason, controls, callback)


def reason_of(explanation: Explanation, query: str, key: str) -> Reason:
    """The origins of two groups."""
    for side, name in (("query", query), ("key", key)):
        if name not in explanation.groups:
            raise ProblemError(f"{side}: expected one of {', '.join(explanation.groups)}, got {name!r}")
    return Reason(frozenset(explanation.groups[query]), frozenset(explanation.groups[key]))


def explained(
    source: ModelAndBatch,
    layer: int,
    heads: Collection[int],
    pattern: str | None,
    sets: Mapping[str, Sequence[tuple[int, int]]],
    origins: Mapping[str, Any] | None = None,
) -> Explanation:
    """The explanation of heads of one layer; see :meth:`attsvm.inspect.Inspection.explain`."""
    chosen = tuple(dict.fromkeys(check_integer("heads", head, 0) for head in heads))
    captured = source.captured(layer, *chosen)
    if not chosen:
        raise ProblemError("heads: expected at least one head, got none")
    check_split(source, layer, captured)
    follows = pattern_of(pattern, captured, source.tokens)
    residual = residual_stream(source.model, source.batch, source.layers[layer])
    features = _features(origins or {}, residual)
    parts = residual.entering(features)
    _check_stream(parts, captured, next(source.model.parameters()).dtype)
    splits = [split_logits(parts, captured, head, follows) for head in chosen]
    if not any(split.margins().sum() > 0 for split in splits):
        which = "has a choice" if pattern is None else f"selects a token of the pattern {pattern!r}"
        raise ProblemError(f"heads: no query of layer {layer}, heads {list(chosen)}, {which}")
    return Explanation(layer, chosen, splits, _groups(list(parts), sets), pattern, source, tuple(features))


def check_split(source: ModelAndBatch, index: int, layer: Layer) -> None:
    """Raise a ProblemError if logits of a layer cannot be split by origin."""
    layer.weights()
    if layer.given is not None or layer.bias is not None:
        biases = "biases that depend on its tokens" if layer.bias_of_tokens else "biases of positions"
        what = biases if layer.given is None else "norms of queries and keys"
        raise ProblemError(f"model: {layer.name} has {what}, which are not split by origin")
    steps_to(source.model, source.layers[index])


def _features(origins: Mapping[str, Any], residual: Residual) -> dict[str, Float[np.ndarray, "k d"]]:
    """The vectors of given origins, of shape (k, d) each.

    Raises ProblemError if they do not fit the residual stream, or are linearly dependent.
    """
    size = next(iter(residual.written[0].values())).shape[-1]
    found = {}
    for name, given in origins.items():
        vectors = np.atleast_2d(as_array(given) if isinstance(given, Tensor) else np.asarray(given, np.float64))
        if vectors.ndim != 2 or vectors.shape[1] != size or not np.isfinite(vectors).all():
            raise ProblemError(
                f"origins[{name!r}]: expected finite vectors of shape (d,) or (k, d) with d = {size}, got shape"
                f" {np.shape(given)}"
            )
        if name in (CONSTANT, *residual.origins):
            raise ProblemError(f"origins: {name!r} is an origin of the model; give it another name")
        found[name] = vectors
    every = np.concatenate([np.zeros((0, size)), *found.values()])
    if len(every) and np.linalg.matrix_rank(every) < len(every):
        raise ProblemError("origins: expected linearly independent vectors, got some that are combinations of others")
    return found


def _check_stream(parts: Parts, layer: Layer, dtype: torch.dtype) -> None:
    """Check that the parts add up to what entered the layer."""
    total = np.sum([part.numpy() for part in parts.values()], axis=0)
    error = np.abs(total - layer.tokens).max() / np.abs(layer.tokens).max()
    if not error <= STREAM_ERROR:
        reason = "family: a part of the model is missing in Family.stream"
        if torch.finfo(dtype).eps > STREAM_ERROR / 10:  # the sums of some layers are rounded by more than the bound
            reason = f"model: its weights are {dtype}, whose rounding may be too large; convert it by model.float()"
        raise ProblemError(
            f"{reason} (the residual stream described for {layer.name} differs from the tokens that enter it by"
            f" {error:.1g} of the largest entry)"
        )


def _groups(origins: list[str], sets: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, list[str]]:
    """Origins by group, in their order; a head of several sets is in the first."""
    groups: dict[str, list[str]] = {}
    names = {f"head {layer}.{head}": f"{name} heads" for name in reversed(list(sets)) for layer, head in sets[name]}
    for origin in (CONSTANT, *origins):
        groups.setdefault(names.get(origin, origin), []).append(origin)
    return groups
