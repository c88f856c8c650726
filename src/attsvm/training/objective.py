"""Logits, pooling, head and loss joined into one objective, and its gradient with the scale taken out."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_entries, settle
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.optimizers import Limit, Optimizer, ScaledGradient, Steps
from attsvm.problem import Problem
from attsvm.training.attention.base import AnyArray, Attention, Parameters, ProblemData, ReducedProblem
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.head_gradient import head_gradient
from attsvm.training.maps.base import AttentionMap
from attsvm.training.maps.softmax import SOFTMAX
from attsvm.training.softmax import log_attention

Array = jax.Array

HISTORY = ("steps", "loss", "probability", "selected", "weights", "log_scale", "logit_change")
"""What the history of a run holds besides parameters."""


# the pooled tokens (n, Q, d, H·B), the winners and their probabilities (n, Q, 1, H·B), the largest logit of each head
# and trial, and what the loss reads of the attention
Attended = tuple[Array, Array, Array, Array, tuple[Array, ...]]


class Observation(NamedTuple):
    """Record of each trial (trailing axis B)."""

    loss: AnyArray  # (B,)
    selected: AnyArray  # ([H,] n, Q, B)
    probability: AnyArray  # ([H,] n, Q, B)
    largest_logit: AnyArray  # (B,)
    exponent: AnyArray  # (B,): the parameters of the attention are 2^exponent times these
    parameters: dict[str, AnyArray]  # ([H,] ..., B)


@dataclass(frozen=True)
class Objective:
    """(1/N) Σ ℓ(f, y) over the unmasked queries, plus penalty · ‖trained parameters‖².

    With several attention heads, f is the sum of their outputs. Trained parameters have the axes (..., H, B), and fixed
    ones the heads folded into the trials (:mod:`attsvm.training.attention_heads`), as keys, queries, tokens and
    masks have.
    """

    attention: Attention  # attention, head, loss: the three pieces
    head: Head
    loss: OutputLoss
    head_names: tuple[str, ...] = ()  # the head's parameters that are trained; empty where it is fixed
    penalized: bool = False  # whether there is a penalty at all
    fixed_names: tuple[str, ...] = ()  # the attention's parameters that are not trained
    heads: AttentionHeads = field(default_factory=AttentionHeads)
    map: AttentionMap = SOFTMAX  # from logits to attention

    several_layers: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        problem: Problem,
        attention: Attention,
        head: Head,
        loss: OutputLoss,
        *,
        train_head: bool = False,
        penalized: bool = False,
        fixed: Sequence[str] = (),
        map: AttentionMap = SOFTMAX,
    ) -> tuple[Self, dict[str, np.ndarray]]:
        """The objective, checked, and all parameters of the head.

        Raises ProblemError if head or loss do not fit, or ``fixed`` has unknown names or leaves nothing to train.
        """
        of_head = head.initial(problem)
        if not isinstance(of_head, dict):
            raise ProblemError(f"head: expected {head.name}.initial to return a dict of arrays, got {of_head!r}")
        of_attention = list(attention.shapes(problem))
        taken = sorted({*of_attention, *HISTORY} & set(of_head))
        if taken:
            raise ProblemError(f"head: the parameter name {taken[0]!r} is taken by the attention or the history")
        if train_head and not of_head:
            raise ProblemError("train_head: expected a head with parameters, got one without")
        _check_fixed(fixed, of_attention, list(of_head), train_head=train_head)
        objective = cls(
            attention,
            head,
            loss,
            tuple(name for name in of_head if train_head and name not in fixed),
            penalized=penalized,
            fixed_names=tuple(name for name in of_attention if name in fixed),
            map=map,
        )
        if loss.reads_attention and map != SOFTMAX:
            raise ProblemError(
                f"map: expected softmax with the {loss.name} loss, which uses its logarithm, got {map.name}"
            )
        loss.check(problem, head, trains_head=train_head)
        objective.check(of_head, problem)
        return objective, of_head

    def check(self, of_head: Mapping[str, np.ndarray], problem: Problem) -> None:
        """Check that JAX can trace head and loss, with one result per query, unless they are defined everywhere.

        Raises ProblemError if they are not.
        """
        if self.defined_everywhere:
            return
        per_query = problem.canonical.active.shape[len(problem.batch_shape) :]
        wanted = per_query if problem.num_classes is None else (*per_query, problem.num_classes)
        pooled = _abstract(*per_query, problem.dim, 1)
        of_trial = {name: _abstract(*x.shape[len(problem.batch_shape) :], 1) for name, x in of_head.items()}
        outputs = _traced("head", self.head.outputs, of_trial, pooled)
        if getattr(outputs, "shape", None) != (*wanted, 1):
            found, of_one = None if outputs is None else outputs.shape[2:-1], wanted[2:]
            raise ProblemError(f"head: expected an output of shape {of_one or '()'}, got {found}")
        labels = _abstract(*per_query, 1)
        values = _traced("loss", self.loss.values, outputs, labels)
        slope = _traced("loss", self.loss.slope, outputs, labels)
        if any(getattr(x, "shape", None) != labels.shape for x in (values, getattr(slope, "log_slope", None))):
            raise ProblemError("loss: expected one number per margin, got another shape; write it elementwise")

    def evaluate(
        self, trained: Parameters, fixed: Parameters, data: ProblemData, penalty: Array
    ) -> tuple[Array, ScaledGradient]:
        """Value (B,) and gradient; parts that are not used are removed by the compiler.

        Attention and head have different common factors.
        """
        value, gradient = self.loss_gradient(trained, fixed, data)
        gradient = self.heads.scaled(gradient)
        if self.penalized:
            value = value + penalty * _sum_of_squares(trained)
            gradient = _add_penalty(gradient, self.heads.seen(trained), penalty)
        return value, gradient

    def loss_gradient(self, trained: Parameters, fixed: Parameters, data: ProblemData) -> tuple[Array, ScaledGradient]:
        """The loss, and its gradient with the heads folded into the trials."""
        of_attention, of_head = self.split(trained, fixed)
        moved = {name: x for name, x in of_attention.items() if name not in self.fixed_names}
        logits, pull_logits = jax.vjp(lambda p: self.attention.logits(of_attention | p, data), moved)
        pooled = self.map.pool(logits, data.tokens, data.allowed, data.copies)
        of_heads, pull_outputs = jax.vjp(self.head.outputs, of_head, self._read_by_head(pooled.output, data))
        outputs = self.heads.total(of_heads)
        of_loss = self._read_by_loss(pooled, data)
        direction, log_slope = self.loss.slope(outputs, data.labels, *of_loss)
        if not self.defined_everywhere:
            # labels of padded queries are 0, where a loss may be undefined
            direction = jnp.where(_per_output(data.query_weight, direction) > 0, direction, 0.0)
        direction, log_slope, query_weight = (
            self.heads.repeated(x, of_heads.shape[-1]) for x in (direction, settle(log_slope), data.query_weight)
        )
        _, output_gradient = pull_outputs(_like(direction, of_heads))
        gradient_of_logits, log_scale = self.map.logit_gradient(
            pooled, data.tokens, output_gradient, log_slope, query_weight
        )
        gradient = ScaledGradient.shared(pull_logits(gradient_of_logits)[0], log_scale)
        if self.head_names:

            def pull_trained(size: Array) -> Parameters:
                of_outputs, _ = pull_outputs(_like(direction * _per_output(size, direction), of_heads))
                return {name: of_outputs[name] for name in self.head_names}

            gradient |= ScaledGradient.shared(*head_gradient(pull_trained, log_slope, query_weight))
        return self.mean_loss(outputs, data, of_loss), gradient

    def attend(self, of_attention: Parameters, fixed: Parameters, data: ProblemData) -> Attended:
        """The last attention layer at some parameters."""
        logits = self.attention.logits(of_attention, data)
        pooled = self.map.pool(logits, data.tokens, data.allowed, data.copies)
        counted = self.heads.repeated(data.query_weight, logits.shape[-1])[:, :, None] > 0
        if data.allowed is not None:
            counted = counted & data.allowed
        largest = jnp.max(jnp.abs(jnp.where(counted, logits, 0.0)), axis=(0, 1, 2))
        return pooled.output, pooled.winner, pooled.probability, largest, self._read_by_loss(pooled, data)

    def defined(self, trained: Parameters, fixed: Parameters, data: ProblemData) -> Array:
        """Whether head and loss are numbers at these parameters, shape (B,)."""
        of_attention, of_head = self.split(trained, fixed)
        pooled, *_, of_loss = self.attend(of_attention, fixed, data)
        return ~jnp.isnan(self.mean_loss(self._outputs(of_head, pooled, data), data, of_loss))

    def observe(
        self, trained: Parameters, fixed: Parameters, data: ProblemData, penalty: Array, exponent: Array
    ) -> Observation:
        """The observation of the current parameters."""
        of_attention, of_head = self.split(trained, fixed)
        pooled, winner, probability, largest, of_loss = self.attend(of_attention, fixed, data)
        value = self.mean_loss(self._outputs(of_head, pooled, data), data, of_loss)
        if self.penalized:
            value = value + penalty * _sum_of_squares(trained)
        return Observation(
            value,
            self.heads.first(self.heads.unfold(winner[:, :, 0])),
            self.heads.first(self.heads.unfold(probability[:, :, 0])),
            self.heads.reduced(jnp.max, largest),
            exponent,
            {name: self.heads.first(x) for name, x in trained.items()},
        )

    @property
    def defined_everywhere(self) -> bool:
        """Whether head and loss have values and slopes everywhere. Otherwise each step checks that they do."""
        return self.head.defined_everywhere and self.loss.defined_everywhere

    def _outputs(self, of_head: Parameters, pooled: Array, data: ProblemData) -> Array:
        """The output of each query, the sum over the attention heads."""
        return self.heads.total(self.head.outputs(of_head, self._read_by_head(pooled, data)))

    def _read_by_head(self, pooled: Array, data: ProblemData) -> Array:
        """The pooled tokens; those of padded queries, which pool none, are replaced by the mean of the others."""
        if data.allowed is None or self.defined_everywhere:
            return pooled
        weight = self.heads.repeated(data.query_weight, pooled.shape[-1])[:, :, None]
        return jnp.where(weight > 0, pooled, jnp.sum(weight * pooled, axis=(0, 1)))

    def split(self, trained: Parameters, fixed: Parameters) -> tuple[Parameters, Parameters]:
        """All parameters of the attention, and all those of the head, the heads folded into the trials."""
        trained = {name: self.heads.fold(x) for name, x in trained.items()}
        of_head = {name: trained[name] for name in self.head_names}
        of_attention = {name: x for name, x in trained.items() if name not in of_head}
        of_attention |= {name: fixed[name] for name in self.fixed_names}
        return of_attention, {name: x for name, x in fixed.items() if name not in of_attention} | of_head

    def _read_by_loss(self, pooled: Any, data: ProblemData) -> tuple[Array, ...]:
        """Compute what a loss of the attention reads beside outputs and labels."""
        if not self.loss.reads_attention:
            return ()
        return (log_attention(pooled, data.tokens, data.labels),)

    def mean_loss(self, outputs: Array, data: ProblemData, of_loss: tuple[Array, ...] = ()) -> Array:
        """The loss of the outputs of all queries, shape (B,). ``of_loss``: what it reads of the attention."""
        # a padded query's loss may be infinite, and 0 · ∞ is NaN
        values = self.loss.values(outputs, data.labels, *of_loss)
        return jnp.sum(jnp.where(data.query_weight > 0, values * data.query_weight, 0.0), axis=(0, 1))

    # the parameters, their limit and their memory, which StackObjective overrides for those of all layers

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one attention head in one trial."""
        return self.attention.shapes(problem)

    def shapes_of_heads(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of all attention heads, with their axis in front."""
        return self.attention.shapes_of_heads(problem)

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """The initial parameters, with or without the batch axes, of which the heads' is the last."""
        return self.attention.initial(problem, generator, batch)

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> ReducedProblem | None:
        """The problem of the attention's trained parameters, from the fixed ones; None if all are fixed."""
        of_attention = {name: fixed[name] for name in self.fixed_names}
        return None if len(of_attention) == len(self.shapes(problem)) else self.attention.reduced(problem, of_attention)

    def default_optimizer(self, reduced: ReducedProblem | None) -> Optimizer:
        """The optimiser of a training that is given none."""
        return (self.attention if reduced is None else reduced.attention).default_optimizer()

    def limit(self, steps: Steps, problem: Problem, reduced: ReducedProblem | None) -> Limit:
        """The limit of the weights after such steps; unknown for an attention that is not trained."""
        if reduced is None:
            return Limit(None)
        queries = math.prod(reduced.problem.canonical.active.shape[-2:])
        heads, groups = reduced.problem.num_heads, reduced.problem.key_groups
        if heads is not None and groups is not None:
            # those of all heads of a group
            queries *= heads // groups
        return reduced.attention.limit(steps, reduced.problem, queries)

    def num_factors(self, trained: Collection[str]) -> int:
        """How many of the trained parameters are multiplied with each other in the weights of one layer."""
        return self.attention.num_factors([name for name in trained if name not in self.head_names])

    def numbers_between_layers(self, sequences: int, problem: Problem) -> int:
        """How many numbers one head of a trial keeps of tokens between layers; none of one layer."""
        return 0

    def largest_data(self, data: ProblemData) -> ProblemData:
        """The data with entries as large as those that any layer may read."""
        return data


def _check_fixed(fixed: Sequence[str], of_attention: list[str], of_head: list[str], *, train_head: bool) -> None:
    known = of_attention + of_head
    unknown = [name for name in fixed if name not in known]
    if unknown:
        raise ProblemError(f"fixed: expected some of {', '.join(known)}, got {unknown[0]!r}")
    if set(of_attention + (of_head if train_head else [])) <= set(fixed):
        raise ProblemError(f"fixed: expected at least one parameter to train, got {', '.join(fixed)}, which are all")


def _add_penalty(gradient: ScaledGradient, trained: Parameters, penalty: Array) -> ScaledGradient:
    """Add 2 penalty θ, on the scale of whichever is larger: exp(−c) alone would overflow once the loss is tiny.

    Parameters that share a scale keep sharing one.
    """
    found = []
    for scale, own in gradient.parts:
        sizes = [over_entries(jnp.maximum, jnp.abs(trained[name])) for name in own]
        new = settle(jnp.maximum(scale.log, jnp.log(2.0 * penalty * jnp.max(jnp.stack(sizes), axis=0))))
        added = {
            name: g * jnp.exp(scale.log - new) + 2.0 * penalty * jnp.exp(-new) * trained[name]
            for name, g in own.items()
        }
        found.append(ScaledGradient.shared(added, new))
    return reduce(or_, found)


def _abstract(*shape: int) -> Any:
    """An array of floats without values, for tracing."""
    return jax.eval_shape(lambda: jnp.zeros(shape))


def _traced(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:  # whatever a user's function may raise
        raise ProblemError(f"{name}: JAX cannot trace it: {reason(error)}") from error


def _per_output(of_queries: Array, outputs: Array) -> Array:
    """(n, Q, B) with the axis of classes that outputs may have."""
    return of_queries if of_queries.ndim == outputs.ndim else of_queries[:, :, None]


def _like(cotangent: Array, outputs: Array) -> Array:
    return jnp.broadcast_to(cotangent, outputs.shape).astype(outputs.dtype)


def _sum_of_squares(parameters: Parameters) -> Array:
    return reduce(jnp.add, [over_entries(jnp.add, x * x) for x in parameters.values()])
