"""A causal test of a reason: parts of the residual stream are taken from random tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float

from attsvm._utils.checks import check_integer, check_seed
from attsvm._utils.progress import Progress
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.families.stream import BIASES, CONSTANT
from attsvm.inspect.residual import Residual, decisions, pattern_of, residual_stream
from attsvm.inspect.weights import Layer

CONTROLS = 20
"""Random reasons with which a reason is compared."""

LEAST = 0.5
"""Sufficiency and necessity that a reason needs."""

LEAST_CHANGE = 0.05
"""Resampling everything has to lower the score by at least this share of it; else there is no reason to test."""


Stream = Float[np.ndarray, "n T d"]
"""What queries or keys are made from."""


class Reason(NamedTuple):
    """Origins that are claimed to decide: those of the queries and those of the keys.

    A side with "constant" claims that the mean over all queries, or over all keys, decides.
    """

    query: frozenset[str]
    key: frozenset[str]


@dataclass(frozen=True, eq=False)
class CausalTest:
    """Whether a reason is sufficient and necessary for the attention of its heads, on sequences of its own.

    An origin is resampled if what it adds at each place is that of a random token of the text, of any sequence and
    place. Queries and keys are resampled independently.

    Attributes
    ----------
    query, key : list of str
        Origins of the reason.
    score : float
        As the model is: the mean attention to the decided tokens.
    resampled : float
        The score when every origin of queries and keys is resampled.
    alone : float
        The score when everything but the reason is resampled.
    without_query, without_key : float
        The score when the origins of the reason are resampled on one side, and nothing else. NaN if that side is
        constant.
    control_sufficiency, control_necessity : ndarrays, shape (controls,)
        Sufficiency and necessity of random reasons of equal size that share no origin with this one on the same side. A
        constant side is constant in them, too.
    """

    query: list[str]
    key: list[str]
    score: float
    resampled: float
    alone: float
    without_query: float
    without_key: float
    control_sufficiency: Float[np.ndarray, " controls"]
    control_necessity: Float[np.ndarray, " controls"]

    @property
    def sufficiency(self) -> float:
        """(alone − resampled)/(score − resampled)."""
        return (self.alone - self.resampled) / (self.score - self.resampled)

    @property
    def necessity(self) -> float:
        """(score − without one side)/(score − resampled), for the side with the smaller effect."""
        without = np.nanmax([self.without_query, self.without_key])
        return float((self.score - without) / (self.score - self.resampled))

    @property
    def passed(self) -> bool:
        """Whether both are at least 0.5 and exceed those of every control."""
        return bool(
            self.sufficiency >= LEAST
            and self.necessity >= LEAST
            and (self.sufficiency > self.control_sufficiency).all()
            and (self.necessity > self.control_necessity).all()
        )

    def __str__(self) -> str:
        return (
            f"queries from {', '.join(self.query)}, keys from {', '.join(self.key)}: sufficiency"
            f" {self.sufficiency:z.2f} (controls at most {self.control_sufficiency.max():z.2f}), necessity"
            f" {self.necessity:z.2f} (controls at most {self.control_necessity.max():z.2f}):"
            f" {'passed' if self.passed else 'failed'}"
        )


@dataclass(frozen=True, eq=False)
class Running:
    """The attention of some heads of a layer on sequences that they were not explained on."""

    heads: tuple[int, ...]
    residual: Residual
    layer: Layer  # with all queries, so that column q is the query at place q
    targets: Bool[np.ndarray, "n heads T T"]  # the tokens that the heads decide for
    score: float = 0.0  # score, resampled: as those of :class:`CausalTest`
    resampled: float = 0.0

    @classmethod
    def of(cls, source: ModelAndBatch, index: int, heads: tuple[int, ...], pattern: str | None, seed: int) -> "Running":
        """Run a model as it is, and with every origin resampled; ``pattern``: of the decisions that count.

        Raises ProblemError if that makes no difference, so that there is no reason to test.
        """
        layer, targets = _decided(source, index, heads, pattern)
        if layer.given is not None:
            raise ProblemError(
                f"model: {layer.name} has norms of queries and keys, which a test does not compute again"
            )
        running = cls(heads, residual_stream(source.model, source.batch, source.layers, index), layer, targets)
        score = running.scored(None, None)
        nothing, generator = frozenset[str](), np.random.default_rng(seed)
        resampled = running.scored(*(running._stream(side, nothing, generator) for side in (0, 1)))
        if not score - resampled >= LEAST_CHANGE * abs(score):
            raise ProblemError(
                f"explanation: expected attention that depends on what queries and keys are made from, but the score is"
                f" {score:z.3g}, and {resampled:z.3g} with those of random tokens; attention that is nearly even, or by"
                " rotary positions alone, has no reason to test"
            )
        return replace(running, score=score, resampled=resampled)

    def test(
        self, reason: Reason, controls: int, seed: int, callback: Callable[[Progress], object] | None = None
    ) -> CausalTest:
        """Test a reason; see :meth:`attsvm.inspect.Explanation.test`. The callback is called after each control."""
        check_integer("controls", controls, 1)
        check_seed(seed)
        generator = np.random.default_rng(seed)
        drawn = _controls(reason, self.residual.origins, controls, generator)
        names, found = (sorted(reason.query), sorted(reason.key)), []
        for step, one in enumerate([reason, *drawn], start=1):
            scores = self._scores(one, generator)
            found.append(CausalTest(*names, self.score, self.resampled, *scores, np.empty(0), np.empty(0)))
            if callback is not None:
                callback(Progress(step, 1 + controls))
        return replace(
            found[0],
            control_sufficiency=np.array([one.sufficiency for one in found[1:]]),
            control_necessity=np.array([one.necessity for one in found[1:]]),
        )

    def _scores(self, reason: Reason, generator: np.random.Generator) -> tuple[float, float, float]:
        """With everything but the reason resampled, and with the reason resampled on either side."""
        every = frozenset(self.residual.origins)
        scores = [self.scored(*(self._stream(side, origins, generator) for side, origins in enumerate(reason)))]
        for side, origins in enumerate(reason):
            if CONSTANT in origins:
                scores.append(np.nan)
                continue
            streams: list[Stream | None] = [None, None]
            streams[side] = self._stream(side, every - origins, generator)
            scores.append(self.scored(*streams))
        return scores[0], scores[1], scores[2]

    def _stream(self, side: int, own: frozenset[str], generator: np.random.Generator) -> Stream:
        """What the queries (side 0) or keys are made from, with all but these origins of random tokens."""
        n, T, _ = self.layer.tokens.shape
        seen = self.layer.allowed.any(axis=1)
        if CONSTANT in own:
            of_side = (self.layer.queries[self.layer.positions >= 0], self.layer.tokens[seen])[side]
            return np.broadcast_to(of_side.mean(axis=0), self.layer.tokens.shape)
        places = np.argwhere(seen)
        drawn = torch.as_tensor(places[generator.integers(len(places), size=(n, T))])
        return self.residual.mixed(drawn, own.__contains__).numpy()

    def scored(self, queries: Stream | None, keys: Stream | None) -> float:
        """The score if the heads make their queries and their keys from other streams; None leaves a side as it is."""
        layer = replace(
            self.layer,
            queries=self.layer.queries if queries is None else queries,
            tokens=self.layer.tokens if keys is None else keys,
        )
        attention = np.stack([layer.probabilities(head) for head in self.heads], axis=1)
        return float((attention * self.targets).sum(axis=-1)[self.targets.any(axis=-1)].mean())


def _decided(
    source: ModelAndBatch, layer: int, heads: Sequence[int], pattern: str | None
) -> tuple[Layer, Bool[np.ndarray, "n heads Q T"]]:
    """A layer, and the tokens that its heads decide for: the selected one, or those of the pattern."""
    captured = source.captured(layer, *heads)
    follows = pattern_of(pattern, captured, source.tokens_of(captured))
    decided = []
    for head in heads:
        keys, queries = captured.projected(head, captured.tokens, captured.queries)
        selected, _ = decisions(queries @ keys.mT, captured.allowed, follows)
        chosen = np.arange(captured.allowed.shape[-1]) == selected[..., None]
        decided.append(chosen if follows is None else follows & (selected >= 0)[..., None])
    if not np.any(decided):
        raise ProblemError(f"batch: no query of layer {layer}, heads {list(heads)}, makes such a decision")
    return captured, np.stack(decided, axis=1)


def _controls(reason: Reason, origins: Sequence[str], count: int, generator: np.random.Generator) -> list[Reason]:
    """Random reasons of equal size without an origin of this one on the same side; what is constant remains so."""
    if CONSTANT in reason.query & reason.key:
        raise ProblemError("query, key: expected an origin that can be resampled on one side, got constants on both")
    sides = []
    for side, of_reason in (("queries", reason.query), ("keys", reason.key)):
        left = [origin for origin in origins if origin not in of_reason and origin != BIASES]
        if not left:
            raise ProblemError(f"controls: there is no origin of {side} beside those of the reason")
        size = min(len(of_reason), len(left))
        drawn = [frozenset(generator.choice(left, size, replace=False).tolist()) for _ in range(count)]
        sides.append([of_reason] * count if CONSTANT in of_reason else drawn)
    return [Reason(query, key) for query, key in zip(*sides, strict=True)]
