"""The training loss of a stack and its gradient in all layers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import added, contract, settle
from attsvm.optimizers import Growing, Limit, Optimizer, ScaledGradient, Steps, normalized_gradient_descent
from attsvm.problem import Problem
from attsvm.stack.layers import Attended, LayerTokens, attend
from attsvm.stack.pullback import Sloped, pull_back, summed
from attsvm.training import Objective, ProblemData

Array = jax.Array
Parameters = dict[str, Array]

VALUES = "V"
"""The value matrices, shape (L − 1, d, d) for each attention head, among the fixed parameters."""

MOST_NUMBERS = 8_192
"""Slices of at least 16 trials are kept: shorter ones take longer for each, even if more arrays stay in the cache."""


@dataclass(frozen=True)
class StackObjective(Objective):
    """(1/N) Σ ℓ(f, y), where f reads a token of the last of several layers.

    ``attention`` is the parametrization of each layer; the parameters of layer l, counted from 0, have its names
    followed by l.
    """

    num_layers: int = 2
    residual: bool = True
    causal: bool = False
    # how much larger the entries of tokens may become from layer to layer, which no program depends on
    growth: float = field(default=1.0, compare=False)

    several_layers = True

    def names(self, layer: int) -> tuple[str, ...]:
        """The parameters of a layer, from 0."""
        of_one = ("K", "Q") if self.attention.takes_rank else ("W",)
        return tuple(f"{name}{layer}" for name in of_one)

    def loss_gradient(self, trained: Parameters, fixed: Parameters, data: ProblemData) -> tuple[Array, ScaledGradient]:
        """The loss, and the gradient of each layer with a scale of its own."""
        of_attention, of_head = self.split(trained, fixed)
        weights, pull_weights = jax.vjp(self.weights, of_attention)
        layers = self.forward(weights, fixed, data)
        pooled = layers[-1].output()
        of_heads, pull_outputs = jax.vjp(self.head.outputs, of_head, self._read_by_head(pooled, data))
        outputs = self.heads.total(of_heads)
        direction, log_slope = self.loss.slope(outputs, data.labels)
        length = of_heads.shape[-1]
        weight = data.query_weight if direction.ndim == 3 else data.query_weight[:, :, None]
        # padded queries have labels of 0, where a loss may be undefined
        direction = self.heads.repeated(jnp.where(weight > 0, weight * direction, 0.0), length)
        _, output_gradient = pull_outputs(jnp.broadcast_to(direction, of_heads.shape).astype(of_heads.dtype))
        slope = Sloped(settle(output_gradient), self.heads.repeated(settle(log_slope), length))
        gradients: list[Array] = []
        logs: list[Array] = []
        kept: Sloped | None = None
        for number in reversed(range(self.num_layers)):
            # the query of the last layer is given; those of the others are their tokens
            pulled = pull_back(layers[number], slope, kept, of_queries=number < self.num_layers - 1)
            gradients.insert(0, pulled.weights)
            logs.insert(0, pulled.log_scale)
            if number > 0:
                of_tokens = summed(self._of_heads(pulled.tokens))
                slope = self._into_heads(of_tokens, length, fixed[VALUES][number - 1] if VALUES in fixed else None)
                # each head adds its share of what the residual passes on
                whole = self._into_heads(of_tokens, length)
                kept = Sloped(whole.direction, whole.log - np.log(self.heads.count)) if self.residual else None
        (gradient,) = pull_weights(gradients)
        layers_apart = (
            ScaledGradient.shared({name: gradient[name] for name in self.names(number)}, log)
            for number, log in enumerate(logs)
        )
        return self.mean_loss(outputs, data), reduce(or_, layers_apart)._replace(gradient=gradient)

    def attend(
        self, of_attention: Parameters, fixed: Parameters, data: ProblemData
    ) -> tuple[Array, Array, Array, Array, tuple[Array, ...]]:
        """The last layer, and the largest logit of all layers."""
        layers = self.forward(self.weights(of_attention), fixed, data)
        last = layers[-1]
        largest = reduce(jnp.maximum, (layer.largest_logit for layer in layers))
        return last.output(), last.winner, last.probability, largest, ()

    def split(self, trained: Parameters, fixed: Parameters) -> tuple[Parameters, Parameters]:
        """All parameters of the layers, and those of the prediction head, the attention heads folded in the trials."""
        folded = {name: self.heads.fold(x) for name, x in trained.items()}
        return folded, {name: x for name, x in fixed.items() if name != VALUES}

    def weights(self, parameters: Parameters) -> list[Array]:
        """W of each layer, shape (d, d_q, B)."""
        each = [[parameters[name] for name in self.names(layer)] for layer in range(self.num_layers)]
        return [x[0] if len(x) == 1 else contract("km,em->ke", *x) for x in each]

    def forward(self, weights: Sequence[Array], fixed: Parameters, data: ProblemData) -> list[Attended]:
        """All layers."""
        length = weights[0].shape[-1]
        allowed = self._self_mask(data)
        tokens, of_one = (LayerTokens(x, None, x) for x in (data.tokens, self._of_one_head(data.tokens)))
        found: list[Attended] = []
        for number, W in enumerate(weights[:-1]):
            found.append(attend(W, tokens, tokens.whole, allowed))
            of_one = self._next_tokens(of_one, found[-1], fixed, number)
            assert of_one.rest is not None
            limit, rest, whole = (self.heads.repeated(x, length) for x in (of_one.limit, of_one.rest, of_one.whole))
            tokens = LayerTokens(limit, rest, whole)
        found.append(attend(weights[-1], tokens, data.queries, data.allowed))
        return found

    def _next_tokens(self, tokens: LayerTokens, layer: Attended, fixed: Parameters, number: int) -> LayerTokens:
        """Compute x + Σ_h V_h o_h, or without the residual Σ_h V_h o_h; the limit and the rest each by themselves."""
        kept_limit, kept_rest = (tokens.limit, tokens.rest) if self.residual else (None, None)
        if VALUES not in fixed:
            limit = layer.winning if kept_limit is None else added(layer.winning, kept_limit)
            return LayerTokens.of(limit, layer.rest_of_output(kept_rest))

        def summed(of_heads: Array, kept: Array | None) -> Array:
            total = self.heads.total(contract("de,nte->ntd", fixed[VALUES][number], of_heads))
            return settle(total) if kept is None else added(total, kept)

        return LayerTokens.of(summed(layer.winning, kept_limit), summed(layer.rest_of_output(), kept_rest))

    def _into_heads(self, slope: Sloped, length: int, values: Array | None = None) -> Sloped:
        """The gradient for each attention head, of its output before the value matrices V_h: V_h'u."""
        direction = self.heads.repeated(slope.direction, length)
        if values is not None:
            direction = contract("de,ntd->nte", values, direction)
        return Sloped(direction, self.heads.repeated(slope.log, length))

    def _of_heads(self, slope: Sloped) -> list[Sloped]:
        """A gradient (..., H·B) as those of each attention head, (..., B)."""
        if self.heads.number is None:
            return [slope]
        direction, log = self.heads.unfold(slope.direction), self.heads.unfold(slope.log)
        return [Sloped(direction[..., h, :], log[..., h, :]) for h in range(self.heads.number)]

    def _of_one_head(self, tokens: Array) -> Array:
        """The tokens, which all heads share: (n, T, d, H·B or 1) to (n, T, d, B or 1)."""
        if self.heads.number is None or tokens.shape[-1] == 1:
            return tokens
        return jnp.asarray(self.heads.unfold(tokens)[..., 0, :])

    def _self_mask(self, data: ProblemData) -> Array | None:
        """Mask what each position of a self-attention layer may attend to, shape (n, T, T, B or 1)."""
        if data.allowed is None and not self.causal:
            return None
        T = data.tokens.shape[1]
        mask = jnp.asarray(np.tril(np.ones((T, T), bool)) if self.causal else np.ones((T, T), bool))[None, :, :, None]
        if data.allowed is None:
            return jnp.broadcast_to(mask, (data.tokens.shape[0], T, T, 1))
        return settle(mask & jnp.any(data.allowed, axis=1, keepdims=True))

    def shapes(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of all layers, without the axes of batch and attention heads."""
        found, m = dict[str, tuple[int, ...]](), self.attention.rank
        for number in range(self.num_layers):
            width = problem.query_dim if number == self.num_layers - 1 else problem.dim
            sizes = [(problem.dim, width)] if m is None else [(problem.dim, m), (width, m)]
            found.update(zip(self.names(number), sizes, strict=True))
        return found

    def shapes_of_heads(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        return {name: problem.heads_shape + shape for name, shape in self.shapes(problem).items()}

    def initial(
        self, problem: Problem, generator: np.random.Generator, batch: tuple[int, ...]
    ) -> dict[str, np.ndarray]:
        """Entries N(0, 1/d), also of W: without them, positions would not differ."""
        scale = problem.dim**-0.5
        return {name: generator.normal(scale=scale, size=batch + core) for name, core in self.shapes(problem).items()}

    def reduced(self, problem: Problem, fixed: dict[str, np.ndarray]) -> None:
        """None: several layers are no problem of one."""

    def default_optimizer(self, reduced: Any) -> Optimizer:
        """Gradient descent with one norm over the gradients of all layers.

        The steps on W grow linearly, so that the weights reach large norms. For factors they are those of one layer.
        """
        if self.attention.takes_rank:
            return self.attention.default_optimizer()
        return normalized_gradient_descent(Growing(), scope="all")

    def limit(self, steps: Steps, problem: Problem, reduced: Any) -> Limit:
        """The limit of the weights of each layer."""
        positions = problem.num_sequences * problem.num_tokens
        return self.attention.limit(steps, problem, positions, layers=True)

    def num_factors(self, trained: Collection[str]) -> int:
        """Count the factors of one layer."""
        return len(self.names(0))

    def numbers_between_layers(self, sequences: int, problem: Problem) -> int:
        """Limit and rest of the tokens of all layers."""
        of_layer = sequences * problem.num_tokens**2 * problem.dim
        return max(of_layer, min(2 * self.num_layers * of_layer, MOST_NUMBERS))

    def largest_data(self, data: ProblemData) -> ProblemData:
        """With tokens that have grown, which are also the queries of all layers but the last one."""
        tokens = data.tokens * self.growth
        queries = np.maximum(*(np.abs(x).max(axis=(0, 1, 2)) for x in (tokens, data.queries)))
        return data._replace(tokens=tokens, keys=tokens, queries=queries[None, None, None])
