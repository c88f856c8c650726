"""A causal test of a reason: parts of the residual stream are taken from other sequences in the running model."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from attsvm.checks import check_integer, check_number, check_seed
from attsvm.errors import ProblemError
from attsvm.torch.inspection.capture import FUSED_ARGUMENTS
from attsvm.torch.inspection.decisions import decisions_of
from attsvm.torch.inspection.families.fused import FusedCall
from attsvm.torch.inspection.families.stream import BIASES
from attsvm.torch.inspection.model_calls import evaluating
from attsvm.torch.inspection.residual import Residual, residual_stream
from attsvm.torch.inspection.source import Source

LEAST = 0.5
"""Sufficiency and necessity that a reason needs."""

LEAST_CHANGE = 0.05
"""Resampling everything has to lower the score by at least this share of it; else there is nothing to explain."""


class Reason(NamedTuple):
    """Origins that are claimed to decide: those of the queries and those of the keys."""

    query: frozenset[str]
    key: frozenset[str]


@dataclass(frozen=True, eq=False)
class CausalTest:
    """Whether a reason is sufficient and necessary for the attention of its heads, on sequences of its own.

    Attributes
    ----------
    query, key : list of str
        Origins of the reason.
    score : float
        Of the running model: the mean attention to the decided tokens, or what ``measure`` returns.
    resampled : float
        The score when every origin of queries and keys is from another sequence.
    sufficiency : float
        (score with everything but the reason resampled − resampled)/(score − resampled).
    necessity : float
        (score − score with the reason resampled)/(score − resampled).
    control_sufficiency, control_necessity : ndarrays, shape (controls,)
        The same for random reasons of equal size that share no origin with this one on the same side.

    See Also
    --------
    attsvm.torch.Explanation.test : Makes one.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.torch import CausalTest
    >>> test = CausalTest(["embedding"], ["head 0.1"], 0.9, 0.1, 0.8, 0.9, np.array([0.1]), np.array([0.2]))
    >>> test.passed
    True
    """

    query: list[str]
    key: list[str]
    score: float
    resampled: float
    sufficiency: float
    necessity: float
    control_sufficiency: Float[np.ndarray, " controls"]
    control_necessity: Float[np.ndarray, " controls"]

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
            f"queries from {', '.join(self.query)}, keys from {', '.join(self.key)}: sufficiency {self.sufficiency:.2f}"
            f" (controls at most {self.control_sufficiency.max():.2f}), necessity {self.necessity:.2f} (controls at"
            f" most {self.control_necessity.max():.2f}): {'passed' if self.passed else 'failed'}"
        )


class Heads(NamedTuple):
    """Heads of one layer on sequences, and the pattern of their decisions."""

    source: Source
    layer: int
    heads: tuple[int, ...]
    pattern: str | None


def causal_test(
    heads: Heads, reason: Reason, controls: int, measure: Callable[[Any], float] | None, seed: int
) -> CausalTest:
    """Test a reason of some heads; see :meth:`attsvm.torch.Explanation.test`."""
    check_integer("controls", controls, 1)
    check_seed(seed)
    running = _Running.of(heads, measure)
    generator = np.random.default_rng(seed)
    drawn = _controls(reason, running.residual.origins, controls, generator)
    score = running.score(None)
    resampled = running.score(running.streams(Reason(frozenset(), frozenset()), generator))
    change = score - resampled
    if not change >= LEAST_CHANGE * abs(score):
        raise ProblemError(
            f"explanation: expected a decision that depends on the text, but the score is {score:.3g}, and"
            f" {resampled:.3g} with queries and keys of other sequences; heads that attend by position cannot be tested"
            " in this way"
        )

    def both(one: Reason) -> tuple[float, float]:
        others = frozenset(running.residual.origins)
        kept = running.score(running.streams(one, generator))
        without = running.score(running.streams(Reason(others - one.query, others - one.key), generator))
        return (kept - resampled) / change, (score - without) / change

    sufficiency, necessity = both(reason)
    of_controls = np.array([both(control) for control in drawn])
    return CausalTest(
        sorted(reason.query),
        sorted(reason.key),
        score,
        resampled,
        sufficiency,
        necessity,
        of_controls[:, 0],
        of_controls[:, 1],
    )


def _controls(reason: Reason, origins: Sequence[str], count: int, generator: np.random.Generator) -> list[Reason]:
    """Random reasons of equal size without an origin of this one on the same side."""
    sides = []
    for side, of_reason in (("queries", reason.query), ("keys", reason.key)):
        left = [origin for origin in origins if origin not in of_reason and origin != BIASES]
        if not left:
            raise ProblemError(f"controls: there is no origin of {side} beside those of the reason")
        size = min(len(of_reason), len(left))
        sides.append([frozenset(generator.choice(left, size, replace=False).tolist()) for _ in range(count)])
    return [Reason(query, key) for query, key in zip(*sides, strict=True)]


@dataclass(frozen=True, eq=False)
class _Running:
    """A model on sequences that it was not explained on, and the attention of some heads of one layer there."""

    source: Source
    module: nn.Module
    heads: tuple[int, ...]
    residual: Residual
    targets: Tensor
    lengths: np.ndarray
    measure: Callable[[Any], float] | None

    @classmethod
    def of(cls, heads: Heads, measure: Callable[[Any], float] | None) -> "_Running":
        source = heads.source
        layer, targets = decisions_of(*heads)
        allowed = layer.allowed.any(axis=1)
        lengths = allowed.sum(axis=-1)
        if not (allowed == (np.arange(allowed.shape[1]) < lengths[:, None])).all():
            raise ProblemError("batch: expected sequences that are padded on the right, if at all")
        attention = source.layers[heads.layer]
        residual = residual_stream(source.model, source.batch, attention)
        return cls(source, attention.module, heads.heads, residual, torch.as_tensor(targets), lengths, measure)

    def others(self, generator: np.random.Generator) -> Tensor:
        """Another sequence for each, at least as long; the longest ones may only have themselves, and are left out."""
        found = np.arange(len(self.lengths))
        for i, length in enumerate(self.lengths):
            longer = np.flatnonzero(self.lengths >= length)
            longer = longer[longer != i]
            found[i] = generator.choice(longer) if len(longer) else i
        if (found == np.arange(len(found))).all():
            raise ProblemError("batch: expected at least two sequences to resample from each other, got one")
        return torch.as_tensor(found)

    def streams(self, own: Reason, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
        """What the layer makes its queries and its keys from, with all but these origins of another sequence."""
        other = self.others(generator)
        query, key = (self.residual.mixed(other, of_side.__contains__) for of_side in own)
        return query, key

    def score(self, streams: tuple[Tensor, Tensor] | None) -> float:
        """Run the model with these streams for the queries and keys of the heads; None changes nothing."""
        model, module = self.source.model, self.module
        with torch.no_grad(), evaluating(model, "sdpa"), _replaced(module, self.heads, streams) as calls:
            output = self.source.run()
        if self.measure is not None:
            return check_number("measure", self.measure(output), "a finite number")
        attention = calls[-1].attention()[:, list(self.heads)].double().cpu()
        decided = self.targets.any(dim=-1)
        alone = torch.as_tensor((self.lengths[:, None] <= self.lengths).sum(axis=1) < 2)
        decided &= ~alone[:, None, None]
        shares = (attention * self.targets).sum(dim=-1)[decided]
        return float(shares.mean())


class _Calls(TorchFunctionMode):
    """Keeps the calls of scaled_dot_product_attention, with other queries and keys for some heads."""

    def __init__(self, heads: tuple[int, ...], query: Tensor | None = None, key: Tensor | None = None) -> None:
        super().__init__()
        self.heads, self.query, self.key = list(heads), query, key
        self.calls: list[FusedCall] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        given = {**dict(zip(FUSED_ARGUMENTS, args, strict=False)), **kwargs}
        repeats = given["query"].shape[1] // given["key"].shape[1]
        for name in ("key", "value"):  # heads that share keys get their own
            given[name] = given[name].repeat_interleave(repeats, 1)
        for name, other in (("query", self.query), ("key", self.key)):
            if other is not None:
                given[name] = given[name].clone()
                given[name][:, self.heads] = other[:, self.heads]
        scale = given.get("scale") or given["query"].shape[-1] ** -0.5
        self.calls.append(
            FusedCall(given["query"], given["key"], given.get("attn_mask"), bool(given.get("is_causal")), scale)
        )
        given.pop("enable_gqa", None)
        return func(**given)


@contextlib.contextmanager
def _replaced(
    module: nn.Module, heads: tuple[int, ...], streams: tuple[Tensor, Tensor] | None
) -> Iterator[list[FusedCall]]:
    """Let a module make the queries and the keys of some heads from other streams; yields its calls."""
    forward = module.forward
    found: list[FusedCall] = []

    def called(states: Tensor | None, *arguments: Any, **keywords: Any) -> tuple[Any, FusedCall]:
        """One run of the module, on other states if they are given."""
        if states is not None:
            like = arguments[0] if arguments else keywords["hidden_states"]
            states = states.to(like)
            arguments, keywords = (
                ((states, *arguments[1:]), keywords) if arguments else ((), {**keywords, "hidden_states": states})
            )
        with _Calls(heads) as mode:
            output = forward(*arguments, **keywords)
        if len(mode.calls) != 1:
            raise ProblemError(
                "model: the causal test needs attention by one call of scaled_dot_product_attention, got"
                f" {len(mode.calls)}"
            )
        return output, mode.calls[0]

    def run(*arguments: Any, **keywords: Any) -> Any:
        if streams is None:
            output, call = called(None, *arguments, **keywords)
            found.append(call)
            return output
        query = called(streams[0], *arguments, **keywords)[1].query
        key = called(streams[1], *arguments, **keywords)[1].key
        with _Calls(heads, query, key) as mode:
            output = forward(*arguments, **keywords)
        found.extend(mode.calls)
        return output

    own = module.__dict__.get("forward")
    module.forward = run
    try:
        yield found
    finally:
        del module.forward
        if own is not None:
            module.forward = own
