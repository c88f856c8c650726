"""Logits, pooling, head and loss joined into one objective, and its gradient with the scale taken out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_entries, settle
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.optimizers.scales import Scale, Scales
from attsvm.optimizers.sizes import over_all
from attsvm.problem import Problem
from attsvm.training.attention import AnyArray, Attention, Data, Parameters
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.softmax import Pooled, log_attention, logit_gradient, pool

Array = jax.Array


class Evaluation(NamedTuple):
    """Objective and gradient of each trial (trailing axis B)."""

    value: Array  # (B,)
    gradient: Parameters  # of each trained parameter, times exp(−log_scale)
    log_scale: Scales  # attention and head have different common factors


class Observation(NamedTuple):
    """What is recorded of each trial (trailing axis B)."""

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

    def evaluate(self, trained: Parameters, fixed: Parameters, data: Data, penalty: Array) -> Evaluation:
        """Value and gradient; parts that are not used are removed by the compiler."""
        of_attention, of_head = self.split(trained, fixed)
        moved = {name: x for name, x in of_attention.items() if name not in self.fixed_names}
        logits, pull_logits = jax.vjp(lambda p: self.attention.logits(of_attention | p, data), moved)
        pooled = pool(logits, data.tokens, data.allowed, data.copies)
        of_heads, pull_outputs = jax.vjp(self.head.outputs, of_head, self._read_by_head(pooled.output, data))
        outputs = self.heads.total(of_heads)
        direction, log_slope = self.loss.slope(outputs, data.labels, *self._of_attention(pooled, data))
        if not self.defined_everywhere:
            # labels of padded queries are 0, where a loss may be undefined
            direction = jnp.where(_over_outputs(data.query_weight, direction) > 0, direction, 0.0)
        direction, log_slope, query_weight = (
            self.heads.repeated(x, of_heads.shape[-1]) for x in (direction, settle(log_slope), data.query_weight)
        )
        _, output_gradient = pull_outputs(_like(direction, of_heads))
        gradient_of_logits, log_scale = logit_gradient(pooled, data.tokens, output_gradient, log_slope, query_weight)
        (gradient,) = pull_logits(gradient_of_logits)
        log_scales = Scales.shared(gradient, log_scale) if gradient else Scales(())
        if self.head_names:

            def pull_trained(size: Array) -> Parameters:
                of_outputs, _ = pull_outputs(_like(direction * _over_outputs(size, direction), of_heads))
                return {name: of_outputs[name] for name in self.head_names}

            of_trained, log_scale = head_gradient(pull_trained, log_slope, query_weight)
            gradient |= of_trained
            log_scales = log_scales | Scales.shared(self.head_names, log_scale)
        gradient, log_scales = self.heads.scaled(gradient, log_scales)
        value = self._mean_loss(outputs, data, pooled)
        if self.penalized:
            value = value + penalty * _sum_of_squares(trained)
            gradient, log_scales = _add_penalty(gradient, log_scales, self.heads.seen(trained), penalty)
        return Evaluation(value, gradient, log_scales)

    def defined(self, trained: Parameters, fixed: Parameters, data: Data) -> Array:
        """Whether head and loss are numbers at these parameters, shape (B,)."""
        of_attention, of_head = self.split(trained, fixed)
        pooled = pool(self.attention.logits(of_attention, data), data.tokens, data.allowed, data.copies)
        return ~jnp.isnan(self._mean_loss(self._outputs(of_head, pooled.output, data), data, pooled))

    def observe(
        self, trained: Parameters, fixed: Parameters, data: Data, penalty: Array, exponent: Array
    ) -> Observation:
        """The observation of the current parameters."""
        of_attention, of_head = self.split(trained, fixed)
        logits = self.attention.logits(of_attention, data)
        pooled = pool(logits, data.tokens, data.allowed, data.copies)
        value = self._mean_loss(self._outputs(of_head, pooled.output, data), data, pooled)
        if self.penalized:
            value = value + penalty * _sum_of_squares(trained)
        counted = self.heads.repeated(data.query_weight, logits.shape[-1])[:, :, None] > 0
        if data.allowed is not None:
            counted = counted & data.allowed
        largest = jnp.max(jnp.abs(jnp.where(counted, logits, 0.0)), axis=(0, 1, 2))
        return Observation(
            value,
            self.heads.first(self.heads.unfold(pooled.winner[:, :, 0])),
            self.heads.first(self.heads.unfold(pooled.probability[:, :, 0])),
            self.heads.over(jnp.max, largest),
            exponent,
            {name: self.heads.first(x) for name, x in trained.items()},
        )

    @property
    def defined_everywhere(self) -> bool:
        """Whether head and loss have values and slopes everywhere. Otherwise each step checks that they do."""
        return self.head.defined_everywhere and self.loss.defined_everywhere

    def _outputs(self, of_head: Parameters, pooled: Array, data: Data) -> Array:
        """The output of each query, the sum over the attention heads."""
        return self.heads.total(self.head.outputs(of_head, self._read_by_head(pooled, data)))

    def _read_by_head(self, pooled: Array, data: Data) -> Array:
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

    def _of_attention(self, pooled: Pooled | None, data: Data) -> tuple[Array, ...]:
        """What a loss of the attention reads beside outputs and labels."""
        if pooled is None or not self.loss.reads_attention:
            return ()
        return (log_attention(pooled, data.tokens, data.labels),)

    def _mean_loss(self, outputs: Array, data: Data, pooled: Pooled | None = None) -> Array:
        # a padded query's loss may be infinite, and 0 · ∞ is NaN
        values = self.loss.values(outputs, data.labels, *self._of_attention(pooled, data))
        return jnp.sum(jnp.where(data.query_weight > 0, values * data.query_weight, 0.0), axis=(0, 1))


def _add_penalty(
    gradient: Parameters, scales: Scales, trained: Parameters, penalty: Array
) -> tuple[Parameters, Scales]:
    """Add 2 penalty θ, on the scale of whichever is larger: exp(−c) alone would overflow once the loss is tiny.

    Parameters that share a scale keep sharing one.
    """
    added: Parameters = {}
    groups: list[Scale] = []
    for group in scales.groups:
        sizes = [over_entries(jnp.maximum, jnp.abs(trained[name])) for name in group.names]
        largest = jnp.max(jnp.stack(sizes), axis=0)
        new = settle(jnp.maximum(group.log, jnp.log(2.0 * penalty * largest)))
        for name in group.names:
            added[name] = gradient[name] * jnp.exp(group.log - new) + 2.0 * penalty * jnp.exp(-new) * trained[name]
        groups.append(Scale(group.names, new))
    return added, Scales(tuple(groups))


def _abstract(*shape: int) -> Any:
    """An array of floats without values, for tracing."""
    return jax.eval_shape(lambda: jnp.zeros(shape))


def _traced(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    except Exception as error:  # whatever a user's function may raise
        raise ProblemError(f"{name}: JAX cannot trace it: {reason(error)}") from error


def _over_outputs(of_queries: Array, outputs: Array) -> Array:
    """(n, Q, B) with the axis of classes that outputs may have."""
    return of_queries if of_queries.ndim == outputs.ndim else of_queries[:, :, None]


def _like(cotangent: Array, outputs: Array) -> Array:
    return jnp.broadcast_to(cotangent, outputs.shape).astype(outputs.dtype)


def _sum_of_squares(parameters: Parameters) -> Array:
    return reduce(jnp.add, [over_entries(jnp.add, x * x) for x in parameters.values()])


class _Scaled(NamedTuple):
    gradient: Parameters  # times exp(−log_scale)
    log_scale: Array  # (B,)
    largest: Array  # (B,): the largest entry of the gradient


class _Search(NamedTuple):
    log_slope: Array  # (n, Q, B): −inf for queries that have been tried
    best: _Scaled


def head_gradient(
    pull: Callable[[Array], Parameters], log_slope: Array, query_weight: Array
) -> tuple[Parameters, Array]:
    """Gradient with respect to the head's parameters, and the logarithm of the factor taken out of it.

    The factor is the largest |ℓ'| of the queries. A query may have the largest |ℓ'| and yet not move the head, for
    instance where no hidden unit is active. If the gradient underflows next to that factor, it is computed again from
    the queries of smaller |ℓ'|, until it is large enough or no query is left.

    ``pull``: from the factor of each query, shape (n, Q, B), to the gradient. ``log_slope``: shape (n, Q, B), log|ℓ'|;
    −inf where it is zero. ``query_weight``: shape (n, Q, B or 1), the share of each query in the mean; 0 for padded
    queries.

    Returns ``gradient`` (the gradient times exp(−c)) and ``log_scale`` (shape (B,), c; 0 where no query has a slope).
    """
    limits = np.finfo(log_slope.dtype)
    # gradients below lose digits to the end of the floats
    smallest = float(limits.tiny / limits.eps)

    def scaled(log_slope: Array) -> _Scaled:
        largest = over_entries(jnp.maximum, log_slope)
        log_scale = jnp.where(jnp.isneginf(largest), 0.0, largest)
        gradient = pull(settle(jnp.exp(log_slope - log_scale) * query_weight))
        return _Scaled(gradient, log_scale, over_all(jnp.maximum, gradient, jnp.abs))

    def lost(search: _Search) -> Array:
        left = over_entries(jnp.maximum, search.log_slope) > -jnp.inf
        return left & (search.best.largest < smallest)

    def next_queries(search: _Search) -> _Search:
        # the upper half of the range of floats; what is below it may have underflowed by the queries' own gradients
        tried = search.log_slope > over_entries(jnp.maximum, search.log_slope) + 0.5 * np.log(smallest)
        log_slope = jnp.where(tried, -jnp.inf, search.log_slope)
        new, old = scaled(log_slope), search.best
        larger = new.log_scale + jnp.log(new.largest) > old.log_scale + jnp.log(old.largest)
        better = lost(search) & larger
        return _Search(log_slope, jax.tree.map(lambda x, y: jnp.where(better, x, y), new, old))

    log_slope = jnp.where(query_weight > 0, log_slope, -jnp.inf)
    start = _Search(log_slope, scaled(log_slope))
    best = jax.lax.while_loop(lambda search: jnp.any(lost(search)), next_queries, start).best
    return best.gradient, best.log_scale
