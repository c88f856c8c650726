"""Why heads attend where they do: their logits split by origin in the residual stream."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from attsvm._utils.checks import check_flag, check_integer
from attsvm._utils.progress import shown
from attsvm.errors import ProblemError
from attsvm.inspect.causal import CONTROLS, CausalTest, Heads, Reason, Running
from attsvm.inspect.decisions import decisions, pattern_of
from attsvm.inspect.families.stream import CONSTANT, Parts
from attsvm.inspect.patterns import Pattern
from attsvm.inspect.residual import residual_stream
from attsvm.inspect.source import Source
from attsvm.inspect.weights import Layer, check_head

STREAM_ERROR = 1e-3
"""Largest difference between the stream and the sum of its parts, relative to the largest entry of the stream."""


class OriginPair(NamedTuple):
    """A part of a decision: what the queries are made from, what the keys are made from, and how much it explains.

    Attributes
    ----------
    query, key : str
        Names of groups of origins; see :attr:`Explanation.groups`.
    share : float
        Of the decision margin. Shares are signed and may exceed 1; those of all pairs add up to 1.
    """

    query: str
    key: str
    share: float

    def __str__(self) -> str:
        return f"queries from {self.query}, keys from {self.key}: {self.share:+.3f} of the margin"


class MarginTerms(NamedTuple):
    """Shares of the decision margin, which add up to 1.

    Attributes
    ----------
    constant_query : float
        Of the mean query with what varies among the keys: every query prefers the same keys.
    interaction : float
        Of what varies among the queries with what varies among the keys.
    constant_key, constants : float
        Of the mean key with what varies among the queries, and with the mean query. The mean key adds the same number
        to all logits of a query, so both are 0, except with rotary positions, which make them depend on the distance.
    """

    constant_query: float
    interaction: float
    constant_key: float
    constants: float


@dataclass(frozen=True, eq=False, repr=False)
class LogitSplit:
    """The logits of one head, split by origin on the side of the queries and on the side of the keys.

    Attributes
    ----------
    head : int
    origins : list of str
        "constant", embedding, positions, earlier heads such as "head 0.3", MLPs such as "MLP 0", and "biases".
    queries : ndarray, shape (origins, n, Q, d_h)
        What each origin contributes to the queries, after rotary positions: the mean query for "constant", and for
        every other origin its difference from its mean over all queries.
    keys : ndarray, shape (origins, n, T, d_h)
        In the same way, with means over all tokens.
    scale : float
        Factor of the logits.
    selected, runner_up : int ndarrays, shape (n, Q)
        The token with the largest logit, and the one with the largest logit among the others; −1 where the query does
        not count.
    error : float
        Largest difference between the sum of all parts and the logits of the head.
    """

    head: int
    origins: list[str]
    queries: Float[np.ndarray, "origins n Q d_h"]
    keys: Float[np.ndarray, "origins n T d_h"]
    scale: float
    selected: Int[np.ndarray, "n Q"]
    runner_up: Int[np.ndarray, "n Q"]
    error: float

    def __repr__(self) -> str:
        return f"LogitSplit(head {self.head}: {len(self.origins)} origins, sum of the parts to {self.error:.0e})"

    def logits(self, query: str | None = None, key: str | None = None) -> Float[np.ndarray, "n Q T"]:
        """The part of the logits with these origins; None means all origins.

        Raises
        ------
        ProblemError
            If there is no such origin.
        """
        logits: np.ndarray = self.scale * (self._of("query", query, self.queries) @ self._of("key", key, self.keys).mT)
        return logits

    def margins(self) -> Float[np.ndarray, "origins origins queries"]:
        """The logit of the selected token minus that of the runner-up, by origin of the queries and of the keys.

        The last axis counts the queries that have both.
        """
        there = self.selected >= 0
        i, q = np.nonzero(there)
        differences = self.keys[:, i, self.selected[there]] - self.keys[:, i, self.runner_up[there]]
        margins: np.ndarray = self.scale * np.einsum("amd,bmd->abm", self.queries[:, i, q], differences)
        return margins

    def _of(self, side: str, origin: str | None, parts: np.ndarray) -> np.ndarray:
        if origin is None:
            return np.asarray(parts.sum(axis=0))
        if origin not in self.origins:
            raise ProblemError(f"{side}: expected one of {', '.join(self.origins)}, got {origin!r}")
        return np.asarray(parts[self.origins.index(origin)])


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The decisions of heads of one layer, by origin of their queries and keys in the residual stream.

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
    >>> import torch
    >>> import attsvm.torch
    >>> from attsvm.inspect.attention_only import AttentionOnly
    >>> _ = torch.manual_seed(0)
    >>> model, tokens = AttentionOnly().double(), torch.randint(64, (4, 16))
    >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
    >>> explanation = inspection.explain(1, [0])
    >>> explanation.error < 1e-12
    True
    >>> round(sum(pair.share for pair in explanation.pairs(most=None)), 6)
    1.0
    """

    layer: int
    heads: tuple[int, ...]
    splits: list[LogitSplit]
    groups: dict[str, list[str]]
    pattern: str | None
    source: Source

    def __repr__(self) -> str:
        heads = ", ".join(f"{self.layer}.{head}" for head in self.heads)
        terms = ", ".join(f"{name} {share:+.3f}" for name, share in self.terms()._asdict().items())
        lines = [
            f"Explanation(head{'s' * (len(self.heads) > 1)} {heads}: mean margin {self.margin:.3g}; {terms})",
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

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> from attsvm.inspect.attention_only import AttentionOnly
        >>> _ = torch.manual_seed(0)
        >>> model, tokens = AttentionOnly().double(), torch.randint(64, (4, 16))
        >>> explanation = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False).explain(1, 0)
        >>> shares = explanation.shares()
        >>> shares.shape == 2 * (len(explanation.groups),), round(float(shares.sum()), 6)
        (True, 1.0)
        """
        origins = self.splits[0].origins
        total = np.sum([split.margins().sum(axis=-1) for split in self.splits], axis=0)
        member = np.array([[origin in of_group for origin in origins] for of_group in self.groups.values()], float)
        shares: np.ndarray = member @ total @ member.T / total.sum()
        return shares

    def terms(self) -> MarginTerms:
        """Share of the decision margin by what varies: the keys alone, queries and keys, the queries alone, or nothing.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> from attsvm.inspect.attention_only import AttentionOnly
        >>> _ = torch.manual_seed(0)
        >>> model, tokens = AttentionOnly().double(), torch.randint(64, (4, 16))
        >>> terms = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False).explain(1, 0).terms()
        >>> round(terms.constant_query + terms.interaction, 6), abs(terms.constant_key + terms.constants) < 1e-12
        (1.0, True)
        """
        shares = self.shares()
        sums = shares[0, 1:].sum(), shares[1:, 1:].sum(), shares[1:, 0].sum(), shares[0, 0]
        return MarginTerms(*(float(share) for share in sums))

    def pairs(self, most: int | None = 10) -> list[OriginPair]:
        """The pairs of groups with the largest shares in absolute value.

        Parameters
        ----------
        most : int, optional
            At most this many; None for all.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> from attsvm.inspect.attention_only import AttentionOnly
        >>> _ = torch.manual_seed(0)
        >>> model, tokens = AttentionOnly().double(), torch.randint(64, (4, 16))
        >>> explanation = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False).explain(1, 0)
        >>> best = explanation.pairs(1)[0]
        >>> best.query in explanation.groups, bool(best.share == explanation.shares().max())
        (True, True)
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
        measure: Callable[[Any], float] | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> CausalTest:
        """Test on other sequences whether a reason is sufficient and necessary, in the running model.

        The queries of the heads are made from the origins ``query`` and their keys from the origins ``key`` of each
        token itself, and from all other origins of random tokens of the batch (sufficiency); or these origins are of
        random tokens, first in the queries and then in the keys (necessity). All norms are computed again. Both are
        divided by the effect of taking all origins from random tokens.

        Parameters
        ----------
        batch : mapping
            Arguments of the model for sequences that it was not explained on.
        query, key : str, optional
            Groups of origins, of ``groups``. By default those of the pair with the largest share. With "constant" the
            queries are their mean over the batch, or the keys; there is nothing of them that could be necessary.
        controls : int
            Number of random reasons of equal size that share no origin with this one on the same side. Each has a
            resampling of its own. Where few origins are left, some occur several times, or are smaller.
        measure : callable, optional
            A number that decreases if the heads fail, from the output of the model. By default the mean attention to
            the selected token; with a pattern, to the tokens of the pattern, for the queries that select one.
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
            If there are no such groups, resampling everything lowers the score by less than 5 % (as for heads that
            attend evenly, or by rotary positions alone), or the attention of the model is not one call of
            ``scaled_dot_product_attention``.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> from attsvm.inspect.attention_only import AttentionOnly
        >>> _ = torch.manual_seed(0)
        >>> model, tokens = AttentionOnly(rotary=True), torch.randint(64, (16, 16))
        >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens[:8]}, margins=False)
        >>> test = inspection.explain(1, 0).test({"input_ids": tokens[8:]}, controls=2)
        >>> len(test.control_necessity)
        2
        """
        if query is None or key is None:
            best = self.pairs(1)[0]
            query, key = query or best.query, key or best.key
        check_flag("progress", progress)
        reason = reason_of(self, query, key)
        source = Source.whole(self.source.model, batch, self.source.layers)
        running = Running.of(Heads(source, self.layer, self.heads, self.pattern), measure, seed)
        with shown(progress, "causal test") as callback:
            return running.test(reason, controls, seed, callback)


def reason_of(explanation: Explanation, query: str, key: str) -> Reason:
    """The origins of two groups."""
    for side, name in (("query", query), ("key", key)):
        if name not in explanation.groups:
            raise ProblemError(f"{side}: expected one of {', '.join(explanation.groups)}, got {name!r}")
    return Reason(frozenset(explanation.groups[query]), frozenset(explanation.groups[key]))


def explained(
    source: Source,
    layer: int,
    heads: Collection[int],
    pattern: str | None,
    sets: Mapping[str, Sequence[tuple[int, int]]],
) -> Explanation:
    """The explanation of heads of one layer; see :meth:`attsvm.inspect.Inspection.explain`."""
    captured = source.captured(check_integer("layer", layer, 0))
    chosen = tuple(dict.fromkeys(check_integer("heads", head, 0) for head in heads))
    for head in chosen:
        check_head(layer, head, captured)
    if not chosen:
        raise ProblemError("heads: expected at least one head, got none")
    what = "norms of queries and keys" if captured.given is not None else "biases of positions"
    if captured.given is not None or captured.bias is not None:
        raise ProblemError(f"model: {captured.name} has {what}, which are not split by origin")
    follows = pattern_of(pattern, captured, source.tokens)
    parts = residual_stream(source.model, source.batch, source.layers[layer]).entering()
    _check_stream(parts, captured, next(source.model.parameters()).dtype)
    splits = [_split(parts, captured, head, follows) for head in chosen]
    if not any(split.margins().sum() > 0 for split in splits):
        which = "has a choice" if pattern is None else f"selects a token of the pattern {pattern!r}"
        raise ProblemError(f"heads: no query of layer {layer}, heads {list(chosen)}, {which}")
    return Explanation(layer, chosen, splits, _groups(list(parts), sets), pattern, source)


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


def _split(parts: Parts, layer: Layer, head: int, follows: Pattern | None) -> LogitSplit:
    at = np.maximum(layer.positions, 0)[..., None]
    asking, seen = layer.positions >= 0, layer.allowed.any(axis=1)
    mean_key, mean_query = np.zeros(layer.tokens.shape[-1]), np.zeros(layer.queries.shape[-1])
    centred = {}
    for origin, part in parts.items():
        tokens = part.numpy()
        asked = np.take_along_axis(tokens, at, axis=1)
        of_key, of_query = tokens[seen].mean(axis=0), asked[asking].mean(axis=0)
        centred[origin] = layer.projected(head, tokens - of_key, asked - of_query, biases=False)
        mean_key, mean_query = mean_key + of_key, mean_query + of_query
    # the biases of the projections are constant, too
    constant = layer.projected(
        head, np.broadcast_to(mean_key, layer.tokens.shape), np.broadcast_to(mean_query, layer.queries.shape)
    )
    keys, queries = zip(constant, *centred.values(), strict=True)
    whole = layer.projected(head, layer.tokens, layer.queries)
    logits = layer.projections.scale * (whole[1] @ whole[0].mT)
    selected, runner_up = decisions(logits, layer.allowed, follows)
    split = LogitSplit(
        head, [CONSTANT, *centred], np.stack(queries), np.stack(keys), layer.projections.scale, selected, runner_up, 0.0
    )
    differences = np.where(layer.allowed, split.logits() - logits, 0.0)
    return LogitSplit(**{**split.__dict__, "error": float(np.abs(differences).max())})


def _groups(origins: list[str], sets: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, list[str]]:
    """Origins by group, in their order; a head of several sets is in the first."""
    groups: dict[str, list[str]] = {}
    names = {f"head {layer}.{head}": f"{name} heads" for name in reversed(list(sets)) for layer, head in sets[name]}
    for origin in (CONSTANT, *origins):
        groups.setdefault(names.get(origin, origin), []).append(origin)
    return groups
