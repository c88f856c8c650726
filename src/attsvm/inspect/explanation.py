"""Why heads attend where they do: their logits split by origin in the residual stream."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from attsvm._utils.checks import check_flag, check_integer
from attsvm._utils.progress import shown
from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.causal import CONTROLS, DRAWS, CausalTest, Reason, Running
from attsvm.inspect.families.stream import BIASES, BIASES_OF_TOKENS, CONSTANT, POSITION_BIASES, Parts
from attsvm.inspect.features import ERROR, OTHER, Features, named_vectors, split_by_features
from attsvm.inspect.residual import LogitSplit, Residual, pattern_of, residual_streams, split_logits, with_features
from attsvm.inspect.weights import Layer, Tokens

STREAM_ERROR = 1e-3
"""Largest difference between the stream and the sum of its parts, relative to the largest entry of the stream."""

OF_PAIRS = (POSITION_BIASES, BIASES_OF_TOKENS)
"""Origins that belong to pairs of places, and not to queries or keys."""

POSITIONAL = {CONSTANT, BIASES, "position", POSITION_BIASES}
"""Origins that do not depend on the text."""


class OriginPair(NamedTuple):
    """A part of a decision: what the queries are made from, what the keys are made from, and how much it explains."""

    # query, key: names of groups of origins; see :attr:`Explanation.groups`
    query: str
    key: str
    share: float  # of the decision margin. Shares are signed and may exceed 1; those of all pairs add up to 1.

    def __str__(self) -> str:
        pair = f"queries from {self.query}, keys from {self.key}"
        return f"{self.query if self.query in OF_PAIRS else pair}: {self.share:+z.3f} of the margin"


class MarginTerms(NamedTuple):
    """Shares of the decision margin, which add up to 1."""

    constant_query: float  # of the mean query with what varies among the keys: every query prefers the same keys
    interaction: float  # of what varies among the queries with what varies among the keys
    # constant_key, constants: of the mean key with what varies among the queries, and with the mean query. The mean key
    # adds the same number to all logits of a query, so both are 0, except with rotary positions, which make them depend
    # on the distance.
    constant_key: float
    constants: float
    biases: float = 0.0  # of biases of positions, as T5's, which belong to no query or key; or of those of DeBERTa


class OffsetShare(NamedTuple):
    """The decisions of heads for tokens at one distance from the query, and what they depend on."""

    offset: int  # place of the selected token minus that of the query: −1 is the previous token
    decisions: float  # share of all decisions
    # shares of the margin of these decisions, which add up to 1
    positions: float  # of the positions alone: constants, biases of positions and learned positions, on both sides
    content: float  # of all other pairs
    pair: OriginPair  # the one with the largest share of ``content``, which its share is of the same margin


class ErrorTerms(NamedTuple):
    """The part of decisions that features of a sparse autoencoder do not explain.

    The mean of the error over all tokens belongs to "constant", as that of every origin.
    """

    share: float  # of the margin: pairs in which the queries, the keys or both come from the error
    kept: float  # share of the decisions in which the selected token leads the runner-up without these pairs


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The decisions of attention heads of one layer, by the origin of their queries and keys in the residual stream.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    layer : int
        In cross-attention the origins of the queries are those of the decoder, and of the keys those of the encoder.
    heads : tuple of int
    splits : list of LogitSplit
        One for each head.
    groups : dict of str to list of str
        Origins by group; the first is "constant", the last that of biases of positions if there are any. Earlier heads
        of one named set, such as "previous token heads", are one group; every other origin is its own.
    pattern : str or None
        The pattern of the decisions, such as "induction"; see :meth:`attsvm.inspect.Inspection.explain`.
    source : Source
        The model and the batch.
    features : tuple of str
        The origins that were given by their vectors.
    error_variance : float or None
        With features of a sparse autoencoder, the squared error over the variance of the tokens, as the layer reads
        both.

    See Also
    --------
    attsvm.inspect.Inspection.explain : Makes one.

    Notes
    -----
    The layer reads a sum of parts through its norm. At its actual scale the norm is linear, so that queries and keys
    are sums of one vector for each origin, and a logit is the sum over pairs of origins. Norms of the stream itself, as
    in BERT, and of queries and keys are linear at their actual scale, too, and so are rotary positions. The parts add
    up to the logits exactly. The scale of a norm depends
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
    error_variance: float | None = None

    def __repr__(self) -> str:
        heads = ", ".join(f"{self.layer}.{head}" for head in self.heads)
        terms = ", ".join(f"{name} {share:+z.3f}" for name, share in self.terms()._asdict().items())
        lines = [
            f"Explanation(head{'s' * (len(self.heads) > 1)} {heads}: mean margin {self.margin:z.3g}; {terms})",
            *(f"  {pair}" for pair in self.pairs(5)),
            *(
                f"  {one.decisions:.0%} of the decisions are for the token at {one.offset:+d}: positions alone"
                f" {one.positions:+z.3f}, content {one.content:+z.3f} of their margin"
                for one in self.offsets(1)
            ),
        ]
        left, variance = self.error_terms(), self.error_variance
        if left is not None and variance is not None:
            lines.append(
                f"  error of the features: {variance:.2f} of the variance, {left.share:+z.3f} of the margin;"
                f" {left.kept:.2f} of the decisions remain without it"
                + ": the features do not explain these heads"
                * (max(abs(left.share), 1 - left.kept, variance) > 0.5)
            )
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
        return self._shares(sum(split.margins().sum(axis=-1) for split in self.splits))

    def _shares(self, total: Float[np.ndarray, "origins origins"]) -> Float[np.ndarray, "groups groups"]:
        origins = self.splits[0].origins
        member = np.array([[origin in of_group for origin in origins] for of_group in self.groups.values()], float)
        shares: np.ndarray = member @ total @ member.T / total.sum()
        return shares

    def terms(self) -> MarginTerms:
        """Share of the decision margin by what varies: keys alone, queries and keys, queries alone, or nothing."""
        shares = self.shares()
        biases = shares[-1, -1] if list(self.groups)[-1] in OF_PAIRS else 0.0
        sums = shares[0, 1:].sum(), shares[1:, 1:].sum() - biases, shares[1:, 0].sum(), shares[0, 0], biases
        return MarginTerms(*(float(share) for share in sums))

    def error_terms(self) -> ErrorTerms | None:
        """The part of the error of a sparse autoencoder in the decisions; None without its features."""
        if ERROR not in self.groups:
            return None
        at = self.splits[0].origins.index(ERROR)
        margins = [split.margins() for split in self.splits]
        whole = np.concatenate([one.sum(axis=(0, 1)) for one in margins])
        without = np.concatenate([np.delete(np.delete(one, at, 0), at, 1).sum(axis=(0, 1)) for one in margins])
        return ErrorTerms(float(1 - without.sum() / whole.sum()), float((without > 0).mean()))

    def pairs(self, most: int | None = 10) -> list[OriginPair]:
        """The pairs of groups with the largest shares in absolute value.

        Parameters
        ----------
        most : int, optional
            At most this many; None for all.
        """
        if most is not None:
            check_integer("most", most, 1)
        return self._pairs(self.shares(), most)

    def _pairs(self, shares: Float[np.ndarray, "groups groups"], most: int | None) -> list[OriginPair]:
        names = list(self.groups)
        order = np.argsort(-np.abs(shares), axis=None, kind="stable")[:most]
        places = (np.unravel_index(at, shares.shape) for at in order)
        return [OriginPair(names[a], names[b], float(shares[a, b])) for a, b in places]

    def offsets(self, most: int = 3) -> list[OffsetShare]:
        """The distances at which the heads select most tokens, and whether positions or content decide at these.

        Parameters
        ----------
        most : int
            At most this many, those with the most decisions first.

        Returns
        -------
        list of OffsetShare
            Empty in cross-attention.

        Examples
        --------
        >>> import torch, transformers
        >>> import attsvm.torch
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        ...                                   num_attention_heads=4)
        >>> model, tokens = transformers.LlamaModel(config), torch.randint(64, (4, 16))
        >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
        >>> first = inspection.explain(1, 0).offsets()[0]
        >>> first.offset <= 0, round(first.positions + first.content, 6)
        (True, 1.0)
        """
        check_integer("most", most, 1)
        if self.splits[0].positions is None:
            return []
        margins = np.concatenate([split.margins() for split in self.splits], axis=-1)
        offsets = np.concatenate([(one.selected - self.splits[0].positions)[one.selected >= 0] for one in self.splits])
        positional = np.array([POSITIONAL.issuperset(of_group) for of_group in self.groups.values()])
        found, counts = np.unique(offsets, return_counts=True)
        shares = []
        for at in np.argsort(-counts, kind="stable")[:most]:
            of_offset = self._shares(margins[..., offsets == found[at]].sum(axis=-1))
            positions = float(of_offset[np.ix_(positional, positional)].sum())
            best = self._pairs(np.where(np.outer(positional, positional), 0.0, of_offset), 1)[0]
            shares.append(OffsetShare(int(found[at]), float(counts[at] / len(offsets)), positions, 1 - positions, best))
        return shares

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
            Groups of origins, of ``groups``. By default those of the pair with the largest share; biases of positions,
            which belong to no token, are passed over. With "constant" the queries are their mean over the batch, or the
            keys; there is nothing of them that could be necessary.
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
            If there are no such groups, the explanation has origins that were given by vectors, the layer is one of
            cross-attention or has norms of queries and keys, or resampling everything lowers the score by less than 5
            %, as for heads that attend evenly, or by rotary positions alone.

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
                "origins: expected an explanation by parts of the model, because only these can be resampled, got "
                f"{self.features[0]!r}"
            )
        if query is None or key is None:
            best = next(pair for pair in self.pairs(None) if not {pair.query, pair.key} & {*OF_PAIRS})
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
        if name in OF_PAIRS:
            raise ProblemError(f"{side}: expected an origin of queries or keys, which can be resampled, got {name!r}")
    return Reason(frozenset(explanation.groups[query]), frozenset(explanation.groups[key]))


def explained(
    source: ModelAndBatch,
    layer: int,
    heads: Collection[int],
    pattern: str | None,
    sets: Mapping[str, Sequence[tuple[int, int]]],
    origins: Mapping[str, Any] | Features | None = None,
) -> Explanation:
    """The explanation of heads of one layer; see :meth:`attsvm.inspect.Inspection.explain`."""
    chosen = tuple(dict.fromkeys(check_integer("heads", head, 0) for head in heads))
    captured = source.captured(layer, *chosen)
    if not chosen:
        raise ProblemError("heads: expected at least one head, got none")
    follows = pattern_of(pattern, captured, source.tokens_of(captured))
    of_queries, of_keys = _streams(source, layer, captured)
    if origins is not None and of_queries is not of_keys:
        raise ProblemError(f"origins: expected a layer of self-attention, got {captured.name}")
    taken = (CONSTANT, OTHER, ERROR, *of_queries.origins, *(f"{name} heads" for name in sets))
    vectors = named_vectors({} if origins is None else origins, captured.tokens.shape[-1], taken)
    if isinstance(origins, Features):
        about: dict[str, Any] = {"norm": of_queries.norm, "layer": captured, "heads": chosen, "follows": follows}
        parts = of_queries.entering(partial(split_by_features, origins, **about))
    else:
        every = np.concatenate([np.zeros((0, captured.tokens.shape[-1])), *vectors.values()])
        if len(every) and np.linalg.matrix_rank(every) < len(every):
            raise ProblemError(
                "origins: expected linearly independent vectors, got some that are combinations of others; give those"
                " of a sparse autoencoder as Features, with its encoder"
            )
        parts = of_queries.entering(partial(with_features, features=vectors))
    of_tokens = parts if of_queries is of_keys else of_keys.entering()
    _check_streams(source, captured, parts, of_tokens)
    splits = [split_logits(parts, of_tokens, captured, head, follows) for head in chosen]
    if not any(split.margins().sum() > 0 for split in splits):
        which = "has a choice" if pattern is None else f"selects a token of the pattern {pattern!r}"
        raise ProblemError(f"heads: no query of layer {layer}, attention heads {list(chosen)}, {which}")
    features = tuple(name for name in parts if name in vectors or name == OTHER)
    groups, unexplained = _groups(splits[0].origins, sets), None
    if isinstance(origins, Features):
        seen, error = captured.allowed.any(axis=1), parts[ERROR].numpy()
        tokens = captured.tokens[seen]
        unexplained = float((error[seen] ** 2).sum() / ((tokens - tokens.mean(axis=0)) ** 2).sum())
    return Explanation(layer, chosen, splits, groups, pattern, source, features, unexplained)


def check_explainable(source: ModelAndBatch, index: int, layer: Layer) -> None:
    """Raise ProblemError if the streams of a layer are not known, or its logits cannot be split by origin."""
    of_queries, of_keys = _streams(source, index, layer)
    parts = of_queries.entering()
    _check_streams(source, layer, parts, parts if of_queries is of_keys else of_keys.entering())


def _streams(source: ModelAndBatch, index: int, layer: Layer) -> tuple[Residual, Residual]:
    """The streams that the queries and the keys of a layer are made from; one in self-attention."""
    layer.weights()
    layer.norm_scales(0)
    return residual_streams(source.model, source.batch, source.layers, index)


def _check_streams(source: ModelAndBatch, layer: Layer, of_queries: Parts, of_keys: Parts) -> None:
    """Check that the parts add up to what entered a layer."""
    dtype, at = next(source.model.parameters()).dtype, np.maximum(layer.positions, 0)[..., None]
    asked = np.take_along_axis(_total(of_queries), at, axis=1)
    _check_stream(np.where(layer.positions[..., None] >= 0, asked, layer.queries), layer.queries, layer.name, dtype)
    if of_keys is not of_queries:
        there = layer.there[..., None]  # padding may be anything
        _check_stream(np.where(there, _total(of_keys), layer.tokens), layer.tokens, layer.name, dtype)


def _total(parts: Parts) -> Float[np.ndarray, "n T d"]:
    total: np.ndarray = np.sum([part.numpy() for part in parts.values()], axis=0)
    return total


def _check_stream(total: Tokens, entered: Tokens, name: str, dtype: torch.dtype) -> None:
    error = np.abs(total - entered).max() / np.abs(entered).max()
    if not error <= STREAM_ERROR:
        reason = "model: its residual stream is not the sum of the outputs of its modules"
        if torch.finfo(dtype).eps > STREAM_ERROR / 10:  # the sums of some layers are rounded by more than the bound
            reason = f"model: its weights are {dtype}, whose rounding may be too large; convert it by model.float()"
        raise ProblemError(
            f"{reason} (the sum of all parts differs from the tokens that enter {name} by {error:.1g} of the largest"
            " entry)"
        )


def _groups(origins: list[str], sets: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, list[str]]:
    """Origins by group, in their order; a head of several sets is in the first."""
    groups: dict[str, list[str]] = {}
    names = {f"head {layer}.{head}": f"{name} heads" for name in reversed(list(sets)) for layer, head in sets[name]}
    for origin in origins:
        groups.setdefault(names.get(origin, origin), []).append(origin)
    return groups
