"""The linear layers that make the queries and the keys of a call, found by comparing what they make with the call."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.inspect.families.call import AttentionCall, as_array
from attsvm.inspect.weights import Projections, rotated

Linear = tuple[Tensor, Tensor | None]
"""Weight (rows, d) and bias (rows,) of a linear layer."""

Rotation = tuple[Tensor, Tensor]
"""Cosines and sines (b, T, d_r) of rotary positions, for the first d_r coordinates of each head."""


class Side(NamedTuple):
    """How the queries, or the keys, of a call are made from tokens."""

    linear: str  # name of the layer
    rows: Tensor  # its rows, head by head
    heads: int
    norm: nn.Module | None  # of each head, of all together, or of the latent vectors
    rotated: bool
    factor: float  # by which the result is multiplied
    latent: str | None = None  # the layer that makes latent vectors, if ``linear`` reads them behind the norm

    def made(self, linears: dict[str, Linear], tokens: Tensor, rotation: Rotation | None) -> Tensor:
        """Queries or keys (b, heads, T, d_h) from tokens (b, T, d)."""
        flat = _applied(linears[self.linear], self.rows, tokens)
        if self.norm is not None and _size(self.norm) == flat.shape[-1]:
            flat = self.norm(flat)
        vectors: Tensor = flat.reshape(*flat.shape[:-1], self.heads, -1).transpose(1, 2)
        if self.norm is not None and _size(self.norm) != flat.shape[-1]:
            vectors = self.norm(vectors)
        if self.rotated and rotation is not None:
            vectors = rotated(vectors, *(part[:, None] for part in rotation))
        return self.factor * vectors

    def weights(self, linears: dict[str, Linear]) -> tuple[Tensor, Tensor]:
        """Weight and bias of its rows, with the factor and the gains of the norm, from tokens on."""
        weight, bias = _double(linears[self.linear], self.rows)
        gain = torch.ones((), dtype=torch.float64, device=weight.device)
        if self.norm is not None:
            ones = torch.ones(_size(self.norm), dtype=next(self.norm.parameters()).dtype, device=weight.device)
            gain = self.norm(ones).double()
        if self.latent is not None:
            first, first_bias = _double(linears[self.latent], torch.arange(len(gain)))
            bias = bias + weight @ (gain * first_bias)
            weight, gain = weight @ (gain[:, None] * first), gain.new_ones(())
        elif gain.ndim:
            gain = gain.repeat(len(weight) // len(gain))
        return self.factor * (weight.T * gain).T, self.factor * bias * gain


@dataclass(frozen=True)
class Recipe:
    """How queries and keys are made from tokens."""

    query: Side
    key: Side
    scale: float  # of the logits
    whole: bool = True  # whether all of their coordinates are, or those without rotary positions only

    @property
    def normed(self) -> bool:
        """Whether queries or keys have norms, whose scale depends on the token."""
        return not (self.query.norm is None and self.key.norm is None)

    @property
    def linear(self) -> bool:
        """Whether logits are bilinear in the tokens, up to rotations of both sides."""
        return self.whole and not self.normed and self.query.rotated == self.key.rotated

    @property
    def acts_on(self) -> str:
        """What W acts on, in words."""
        parts = {
            "before the rotation": self.query.rotated,
            "of coordinates without rotation": not self.whole,
            "without the norms": self.normed,
        }
        return ", ".join(words for words, holds in parts.items() if holds) or "acts on tokens"

    def projections(self, linears: dict[str, Linear]) -> Projections:
        """The present weights."""
        parts: list[np.ndarray] = []
        for side in (self.query, self.key):
            weight, bias = (as_array(part) for part in side.weights(linears))
            of_heads = weight.reshape(side.heads, -1, weight.shape[1]).mT, bias.reshape(side.heads, -1)
            parts += (np.repeat(part, self.query.heads // side.heads, axis=0) for part in of_heads)
        query, query_bias, key, key_bias = parts
        return Projections(query, query_bias, key, key_bias, self.scale)


class Sources(NamedTuple):
    """What a recipe can start from: tokens (b, T, d) of the arguments of a call, and rotary positions."""

    linears: dict[str, Linear]
    norms: Sequence[nn.Module]
    tokens: Sequence[Tensor]
    rotation: tuple[Tensor, Tensor] | None  # cosines and sines, in this order or the other, of each pair or coordinate

    def beginning_with(self, name: str | None) -> "Sources":
        """The same, with a linear layer as the first one."""
        return self._replace(linears=dict(sorted(self.linears.items(), key=lambda one: one[0] != name)))


class ProjectionCandidate(NamedTuple):
    """A recipe, the tokens that its queries and keys are made from, and the rotary positions."""

    recipe: Recipe
    queries: Tensor
    keys: Tensor
    rotation: Rotation | None


def find_recipe(call: AttentionCall, sources: Sources, earlier: Recipe | None = None) -> ProjectionCandidate | None:
    """How the queries and keys of a call are made; None if it is not found.

    Each linear layer of the module is tried, those of an ``earlier`` recipe first, with the rows of queries and keys
    one after the other or head by head, with the norms of the module and with rotary positions. What a recipe makes of
    the first sequence must equal the queries and keys of the call.
    """
    sources = sources._replace(norms=[norm for norm in sources.norms if _scales(norm)])
    key = call.key[:, :: _repeats(call.key)]
    heads, groups, size = call.query.shape[1], key.shape[1], key.shape[-1]
    names = (None, None) if earlier is None else (earlier.query.linear, earlier.key.linear)
    of_queries, of_keys = (sources.beginning_with(name) for name in names)
    for rotation, order in _turns(sources.rotation, size):
        query_side = _find(call.query, lambda rows: _query_rows(rows, heads, groups, size), of_queries, rotation, order)
        if query_side is None:
            continue
        key_side = _find(key, lambda rows: _key_rows(rows, heads, groups, size), of_keys, rotation, order)
        if key_side is not None:
            recipe = Recipe(query_side[0], key_side[0], call.scale)
            return ProjectionCandidate(recipe, query_side[1], key_side[1], rotation)
    rest = 0 if sources.rotation is None else size - _of_coordinates(sources.rotation[0]).shape[-1]
    if rest <= 0:
        return None
    # DeepSeek-V3 rotates the last coordinates, and makes the others from latent vectors behind a norm
    query_side, key_side = (_find_latent(part[..., :rest], sources) for part in (call.query, key))
    if query_side is None or key_side is None:
        return None
    return ProjectionCandidate(
        Recipe(query_side[0], key_side[0], call.scale, whole=False), query_side[1], key_side[1], None
    )


def _turns(given: tuple[Tensor, Tensor] | None, size: int) -> Iterator[tuple[Rotation | None, Tensor]]:
    """Rotations of the coordinates (i, i + d_r/2), and the order of coordinates in which they rotate the given ones."""
    plain = torch.arange(size)
    if given is None:
        yield None, plain
        return
    one, other = (_of_coordinates(part) for part in given)
    rotated_size = one.shape[-1]
    # GPT-J rotates the coordinates (2i, 2i + 1); the order of coordinates changes no logit
    interleaved = torch.cat([plain[:rotated_size:2], plain[1:rotated_size:2], plain[rotated_size:]])
    for rotation in ((one, other), (other, one)):
        for order in (plain, interleaved):
            yield rotation, order


def _of_coordinates(part: Tensor) -> Tensor:
    """Cosines or sines (b, T, d_r) of the coordinates, from those of coordinates in either order, or of pairs."""
    half = part.shape[-1] // 2
    for first, second in ((part[..., :half], part[..., half:]), (part[..., ::2], part[..., 1::2])):
        if first.shape == second.shape and torch.equal(first, second):
            return torch.cat([first, first], dim=-1)
    return torch.cat([part, part], dim=-1)


def _find(
    target: Tensor,
    layouts: Callable[[int], Iterator[Tensor]],
    sources: Sources,
    rotation: Rotation | None,
    order: Tensor,
) -> tuple[Side, Tensor] | None:
    """The first way to make queries or keys (b, heads, T, d_h), and the tokens it starts from."""
    heads, size = target.shape[1], target.shape[-1]
    norms = [None, *(norm for norm in sources.norms if _size(norm) in (size, heads * size))]
    if rotation is not None:  # keys of a cache are before the tokens of the call
        rotation = rotation[0][:1, -target.shape[2] :], rotation[1][:1, -target.shape[2] :]
    target_of_first = target[:1, ..., order.to(target.device)].detach()
    for tokens, (name, (weight, _)) in product(sources.tokens, sources.linears.items()):
        fits = tokens.shape[:2] == target.shape[::2] and tokens.shape[-1] == weight.shape[1]
        if not fits or tokens.device != weight.device:  # weights may be offloaded
            continue
        turns = (False,) if rotation is None else (False, True)
        for rows, norm, turned in product(layouts(len(weight)), norms, turns):
            in_order = rows.view(heads, size)[:, order].reshape(-1)
            side = Side(name, in_order, heads, norm, turned, 1.0)
            made = side.made(sources.linears, tokens[:1].detach(), rotation)
            square = made.double().square().sum()
            factor = float((made.double() * target_of_first.double()).sum() / square) if square else 0.0
            factor = 1.0 if abs(factor - 1) < 1e-3 else factor
            if _equal(factor * made, target_of_first):
                return side._replace(factor=factor), tokens
    return None


def _find_latent(target: Tensor, sources: Sources) -> tuple[Side, Tensor] | None:
    """The first way to make the first coordinates of queries or keys, from tokens or from latent vectors."""
    heads, size = target.shape[1], target.shape[-1]

    def layouts(rows: int) -> Iterator[Tensor]:
        if rows % heads == 0 and rows >= heads * size:
            yield torch.arange(rows).view(heads, -1)[:, :size].reshape(-1)

    plain, order = sources._replace(norms=()), torch.arange(size)
    direct = _find(target, layouts, plain, None, order)
    if direct is not None:
        return direct
    for tokens, (name, linear), norm in product(sources.tokens, sources.linears.items(), sources.norms):
        width = _size(norm)
        fits = tokens.shape[-1] == linear[0].shape[1] and len(linear[0]) >= width
        if fits and tokens.device == linear[0].device:
            latent = norm(_applied(linear, torch.arange(width), tokens))
            found = _find(target, layouts, plain._replace(tokens=[latent]), None, order)
            if found is not None:
                return found[0]._replace(norm=norm, latent=name), tokens
    return None


def _applied(linear: Linear, rows: Tensor, tokens: Tensor) -> Tensor:
    """What some rows of a layer make of tokens."""
    weight, bias = linear
    rows = rows.to(weight.device)
    return functional.linear(tokens.to(weight.dtype), weight[rows], None if bias is None else bias[rows])


def _double(linear: Linear, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of some rows in float64; zeros without a bias."""
    weight, bias = linear[0][rows].double(), linear[1]
    return weight, weight.new_zeros(len(rows)) if bias is None else bias[rows].double()


def _query_rows(rows: int, heads: int, groups: int, size: int) -> Iterator[Tensor]:
    """Places of the queries in a layer of so many rows: first, or before the key and the value of their group."""
    at = torch.arange(rows)
    if rows >= heads * size:
        yield at[: heads * size]
    if rows == (heads + 2 * groups) * size:
        yield at.view(groups, -1, size)[:, :-2].reshape(-1)


def _key_rows(rows: int, heads: int, groups: int, size: int) -> Iterator[Tensor]:
    """Places of the keys: in a layer of their own, behind the queries, or behind the queries of their group."""
    at = torch.arange(rows)
    if rows == groups * size:
        yield at
    if rows >= (heads + groups) * size:
        yield at[heads * size : (heads + groups) * size]
    if rows == (heads + 2 * groups) * size:
        yield at.view(groups, -1, size)[:, -2].reshape(-1)


def _equal(made: Tensor, target: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    largest = float(target.abs().max())
    eps = max(torch.finfo(made.dtype).eps, torch.finfo(target.dtype).eps)
    return largest > 0 and float((made - target).abs().max()) <= max(1e-5, 16 * eps) * largest


def _repeats(key: Tensor) -> int:
    """How often each key head is repeated."""
    first, count = key[:1], key.shape[1]
    divisors = (r for r in range(count, 1, -1) if count % r == 0)
    return next((r for r in divisors if torch.equal(first, first[:, ::r].repeat_interleave(r, 1))), 1)


def _scales(norm: nn.Module) -> bool:
    """Whether a norm only scales the coordinates of a vector, as RMSNorm does: then its gains are a part of W.

    LayerNorm also subtracts a mean and adds a bias; the norms of Cohere have gains for each head.
    """
    gains = next(norm.parameters(), None)
    if gains is None or gains.ndim != 1 or gains.is_meta:
        return False
    ones = torch.ones_like(gains)
    ramp = ones.cumsum(0) / len(ones)
    size = ramp.double().square().mean().sqrt()
    return torch.allclose((norm(ramp) * size).double(), (norm(ones) * ramp).double(), rtol=0.02, atol=1e-4)


def _size(norm: nn.Module) -> int:
    return sum(weight.numel() for weight in list(norm.parameters())[:1])
