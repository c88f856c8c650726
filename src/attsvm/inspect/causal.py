"""A causal test of a reason: parts of the residual stream are taken from random tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm._utils.checks import check_integer, check_seed
from attsvm._utils.progress import Progress
from attsvm._utils.shapes import Bool, Float
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.families.stream import BIASES, CONSTANT
from attsvm.inspect.residual import Residual, decisions, pattern_of, residual_stream
from attsvm.inspect.weights import Layer
from attsvm.statistics import Estimate, student_mean

CONTROLS = 20
"""Random reasons with which a reason is compared."""

DRAWS = 10
"""Resamplings over which scores are averaged."""

LEVEL = 0.99
"""The confidence level of intervals over the draws. A page has many of them, and each is compared with 0.5."""

LEAST = 0.5
"""Sufficiency and necessity that a reason needs."""

LEAST_CHANGE = 0.05
"""Resampling everything has to lower the score by at least this share of it; else there is no reason to test."""


Stream = Float[np.ndarray, "n T d"]
"""What queries or keys are made from."""

Draws = Float[np.ndarray, " draws"]
"""A number for each draw."""


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
    place. Queries and keys are resampled independently. This is repeated in several draws, which are the same for the
    reason and its controls.

    Attributes
    ----------
    query, key : list of str
        Origins of the reason.
    score : float
        As the model is: the mean attention to the decided tokens.
    resampled : ndarray, shape (draws,)
        The score when every origin of queries and keys is resampled.
    alone : ndarray, shape (draws,)
        The score when everything but the reason is resampled.
    without_query, without_key : ndarrays, shape (draws,)
        The score when the origins of the reason are resampled on one side, and nothing else. NaN if that side is
        constant.
    control_sufficiency, control_necessity : ndarrays, shape (controls, draws)
        Sufficiency and necessity of random reasons of equal size that share no origin with this one on the same side. A
        constant side is constant in them, too. The mean over the draws is that of a control.

    Notes
    -----
    Sufficiency and necessity are ratios of means over the draws, and their intervals are Student's, at 99 %, with the
    ratio linearised at the means (the delta method). An interval covers the resampling: what infinitely many draws on
    these sequences would give. It does not cover the choice of the sequences.

    A reason that is itself a random one exceeds all k controls with a probability of at most 1/(k + 1), which is 1/21
    by default.
    """

    query: list[str]
    key: list[str]
    score: float
    resampled: Draws
    alone: Draws
    without_query: Draws
    without_key: Draws
    control_sufficiency: Float[np.ndarray, "controls draws"]
    control_necessity: Float[np.ndarray, "controls draws"]

    @property
    def sufficiency(self) -> Estimate:
        """(alone − resampled)/(score − resampled), of means over the draws: ``value``, ``low`` and ``high``."""
        return student_mean(self._effects()[0], LEVEL)

    @property
    def necessity(self) -> Estimate:
        """(score − without one side)/(score − resampled), for the side with the smaller effect."""
        return student_mean(self._effects()[1], LEVEL)

    @property
    def verdict(self) -> str:
        """The result: "passed", "failed" or "undecided".

        It is "passed" if the intervals of both are above 0.5, and those of the differences to every control above 0. It
        is "failed" if one of both is below 0.5, or is exceeded by at least half of the controls, by their intervals.
        """
        effects, controls = self._effects(), np.stack([self.control_sufficiency, self.control_necessity])
        own, apart = student_mean(effects, LEVEL), student_mean(effects[:, None] - controls, LEVEL)
        if (own.low >= LEAST).all() and (apart.low > 0).all():
            return "passed"
        exceeded = (apart.high <= 0).mean(axis=1)
        return "failed" if (own.high < LEAST).any() or (exceeded >= 0.5).any() else "undecided"

    def _effects(self) -> Float[np.ndarray, "2 draws"]:
        return _effects(self.score, self.resampled, np.stack([self.alone, self.without_query, self.without_key]))

    def __str__(self) -> str:
        found = (
            f"{name} {one.value:z.2f} ± {one.high - one.value:.2f} (controls at most"
            f" {controls.mean(axis=-1).max():z.2f})"
            for name, one, controls in (
                ("sufficiency", self.sufficiency, self.control_sufficiency),
                ("necessity", self.necessity, self.control_necessity),
            )
        )
        origins = f"queries from {', '.join(self.query)}, keys from {', '.join(self.key)}"
        return f"{origins}: {', '.join(found)}: {self.verdict}"


def _effects(score: float, resampled: Draws, scores: Float[np.ndarray, "3 draws"]) -> Float[np.ndarray, "2 draws"]:
    """Sufficiency and necessity of a reason in each draw, to first order; their means are the ratios of the means."""
    alone, *sides = scores
    without = max((side for side in sides if not np.isnan(side).any()), key=np.mean)
    # with R = (s̄ − r̄)/(score − r̄) left of the effect, dR = (ds − (1 − R) dr)/(score − r̄)
    middle = resampled.mean()
    left = []
    for kept in (alone, without):
        share = (kept.mean() - middle) / (score - middle)
        left.append(share + (kept - kept.mean() - (1 - share) * (resampled - middle)) / (score - middle))
    return np.stack([left[0], 1 - left[1]])


@dataclass(frozen=True, eq=False)
class Running:
    """The attention of some heads of a layer on sequences that they were not explained on."""

    heads: tuple[int, ...]
    residual: Residual
    layer: Layer  # with all queries, so that column q is the query at place q
    targets: Bool[np.ndarray, "n heads T T"]  # the tokens that the heads decide for
    seed: int
    places: Tensor  # (draws, 2, n, T, 2): the tokens from which queries and keys have the resampled origins
    score: float = 0.0  # score, resampled: as those of :class:`CausalTest`
    resampled: Draws = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(
        cls,
        source: ModelAndBatch,
        index: int,
        heads: tuple[int, ...],
        pattern: str | None,
        seed: int,
        draws: int = DRAWS,
    ) -> "Running":
        """Run a model as it is, and with every origin resampled; ``pattern``: of the decisions that count.

        Raises ProblemError if that makes no difference, so that there is no reason to test.
        """
        check_integer("draws", draws, 2)
        check_seed(seed)
        layer, targets = _decided(source, index, heads, pattern)
        if layer.given is not None:
            raise ProblemError(
                f"model: {layer.name} normalises its queries and keys, which a test does not compute again"
            )
        there = np.argwhere(layer.allowed.any(axis=1))
        at = np.random.default_rng(seed).integers(len(there), size=(draws, 2, *layer.tokens.shape[:2]))
        residual = residual_stream(source.model, source.batch, source.layers, index)
        running = cls(heads, residual, layer, targets, seed, torch.as_tensor(there[at]))
        score, nothing = running.scored(None, None), frozenset[str]()
        resampled = running._draws(running._streams(0, nothing), running._streams(1, nothing))
        if not score - resampled.mean() >= LEAST_CHANGE * abs(score):
            raise ProblemError(
                f"explanation: expected attention that depends on what queries and keys are made from, but the score is"
                f" {score:z.3g}, and {resampled.mean():z.3g} with those of random tokens; attention that is nearly"
                " even, or by rotary positions alone, has no reason to test"
            )
        return replace(running, score=score, resampled=resampled)

    def test(self, reason: Reason, controls: int, callback: Callable[[Progress], object] | None = None) -> CausalTest:
        """Test a reason; see :meth:`attsvm.inspect.Explanation.test`. The callback is called after each control."""
        check_integer("controls", controls, 1)
        drawn = _controls(reason, self.residual.origins, controls, np.random.default_rng([self.seed, 1]))
        found: dict[Reason, np.ndarray] = {}  # where few origins are left, some occur several times
        for step, one in enumerate([reason, *drawn], start=1):
            found[one] = found[one] if one in found else self._scores(one)
            if callback is not None:
                callback(Progress(step, 1 + controls))
        effects = np.stack([_effects(self.score, self.resampled, found[one]) for one in drawn], axis=1)
        return CausalTest(
            sorted(reason.query), sorted(reason.key), self.score, self.resampled, *found[reason], *effects
        )

    def _scores(self, reason: Reason) -> Float[np.ndarray, "3 draws"]:
        """With everything but the reason resampled, and with the reason resampled on either side."""
        every, asis = frozenset(self.residual.origins), [None] * len(self.places)
        scores = [self._draws(self._streams(0, reason.query), self._streams(1, reason.key))]
        for side, origins in enumerate(reason):
            if CONSTANT in origins:
                scores.append(np.full(len(asis), np.nan))
                continue
            streams = self._streams(side, every - origins)
            scores.append(self._draws(asis, streams) if side else self._draws(streams, asis))
        return np.stack(scores)

    def _streams(self, side: int, own: frozenset[str]) -> Iterator[Stream]:
        """What queries (side 0) or keys are made from in each draw, with all but these origins of random tokens."""
        if CONSTANT in own:
            seen = self.layer.allowed.any(axis=1)
            of_side = (self.layer.queries[self.layer.positions >= 0], self.layer.tokens[seen])[side]
            yield from [np.broadcast_to(of_side.mean(axis=0), self.layer.tokens.shape)] * len(self.places)
            return
        mix = self.residual.mixed(own.__contains__)
        yield from (mix(places).numpy() for places in self.places[:, side])

    def _draws(self, queries: Iterable[Stream | None], keys: Iterable[Stream | None]) -> Draws:
        """The score of each draw."""
        return np.array([self.scored(*streams) for streams in zip(queries, keys, strict=True)])

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
        raise ProblemError("query, key: expected at least one origin that can be resampled, got constants")
    sides = []
    for side, of_reason in (("queries", reason.query), ("keys", reason.key)):
        left = [origin for origin in origins if origin not in of_reason and origin != BIASES]
        if not left:
            raise ProblemError(f"controls: there is no origin of {side} outside of the reason")
        size = min(len(of_reason), len(left))
        drawn = [frozenset(generator.choice(left, size, replace=False).tolist()) for _ in range(count)]
        sides.append([of_reason] * count if CONSTANT in of_reason else drawn)
    return [Reason(query, key) for query, key in zip(*sides, strict=True)]
