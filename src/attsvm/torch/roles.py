"""What each parameter of a transformer is, by the type of its module, its name and its shape.

No library of models is imported: a module counts by its class, or by the name of its class.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from attsvm._utils.text import without_wrappers

Heads = int | tuple[int, int] | None

_PREFIX, _SUFFIX = r"^(?:w_?|to_|linear_|proj_|attn_|c_)?", r"(?:_proj|_lin|_linear|_projection)?(?:_weight)?$"
_ATTENTION = {
    "q": re.compile(f"{_PREFIX}(?:q|query|queries){_SUFFIX}"),
    "k": re.compile(f"{_PREFIX}(?:k|key|keys){_SUFFIX}"),
    "v": re.compile(f"{_PREFIX}(?:v|value|values){_SUFFIX}"),
    "kv": re.compile(f"{_PREFIX}(?:kv|key_value){_SUFFIX}"),
    "qkv": re.compile(f"{_PREFIX}(?:qkv|query_key_value|in_proj|attn|pack){_SUFFIX}"),
}
_PROJECTION = re.compile(f"{_PREFIX}(?:o|out|output|proj|dense){_SUFFIX}")
_TABLE = re.compile(r"pos|embed|token|cls|table|bias|prompt|latent|queries")
_ROUTER = re.compile(r"^(?:gate|router|gating|switch)$")

_NUM_HEADS = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "num_q_heads", "heads", "h")
_KEY_GROUPS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads", "num_query_groups")


class Role(NamedTuple):
    """What a parameter is, how its matrices lie, and why."""

    kind: str  # "attention", "matrices", "lora", "embeddings", "output", "vectors" or "other"
    layout: dict[str, Any]  # options of a group
    why: str


class Location(NamedTuple):
    """Where a parameter is in a model."""

    name: str  # as `named_parameters` gives it
    path: tuple[str, ...]  # names of the modules that hold it, without wrappers
    entry: str  # its name in its module
    parameter: Tensor
    owners: list[nn.Module]  # its module first, the model last

    @property
    def module(self) -> nn.Module:
        return self.owners[0]

    @property
    def names(self) -> tuple[str, str]:
        """The name of the layer, in small letters, and the path of what holds the layer."""
        if self.entry == "weight" and self.path:
            return self.path[-1].lower(), ".".join(self.path[:-1])
        return self.entry.lower(), ".".join(self.path)

    @property
    def pattern(self) -> str:
        """Its name with * for each number, which it shares with the same layer of other blocks."""
        return re.sub(r"\b\d+\b", "*", self.name)

    @property
    def in_block(self) -> bool:
        """Whether it belongs to a layer of a numbered block of several layers."""
        return any(name.isdigit() for name in self.path[:-1])

    @property
    def linear(self) -> bool:
        kind = type(self.module).__name__
        return self.entry == "weight" and (isinstance(self.module, nn.Linear) or "Linear" in kind or kind == "Conv1D")

    @property
    def transposed(self) -> bool:
        return type(self.module).__name__ == "Conv1D"

    @property
    def rows(self) -> int:
        return self.parameter.shape[-1 if self.transposed else -2]

    @property
    def columns(self) -> int:
        return self.parameter.shape[-2 if self.transposed else -1]


def places_of(model: nn.Module) -> list[list[Location]]:
    """All places of each parameter, in the order of `named_parameters`; tied weights have several."""
    found: dict[int, list[Location]] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, module in modules.items():
        names = name.split(".") if name else []
        owners = [modules[".".join(names[:n])] for n in range(len(names), -1, -1)]
        path = tuple(without_wrappers(names))
        for entry, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            place = Location(f"{name}.{entry}" if name else entry, path, entry, parameter, owners)
            found.setdefault(id(parameter), []).append(place)
    return [found[id(parameter)] for parameter in model.parameters()]


def roles_of(model: nn.Module, heads: Heads = None) -> Iterator[tuple[Location, Role]]:
    """The role of each parameter. ``heads``: H, or H and g, in place of what the modules say."""
    everything = places_of(model)
    layers = [places[0] for places in everything if _is_layer(places[0])]
    beside: dict[str, dict[str, Location]] = {}
    for place in (places[0] for places in everything):
        layer, parent = place.names
        for part, pattern in _ATTENTION.items():
            if place.parameter.ndim in (2, 3) and pattern.match(layer):
                beside.setdefault(parent, {})[part] = place
    for places in everything:
        place = places[0]
        if any(isinstance(other.module, (nn.Embedding, nn.EmbeddingBag)) for other in places):
            yield place, Role("embeddings", {}, "tied embedding" if len(places) > 1 else "embedding")
            continue
        siblings = beside.get(place.names[1], {})
        role = _attention(place, siblings, heads)
        if role is None and siblings and _heads_are_second(place, heads):
            role = Role("matrices", {"flatten": True}, "matrix of attention, heads along the second axis")
        yield place, role or _other(place, layers, bool(siblings))


def _is_layer(place: Location) -> bool:
    return place.linear or (isinstance(place.module, _ConvNd) and place.entry == "weight")


def _other(place: Location, layers: list[Location], in_attention: bool) -> Role:
    parameter, (layer, _) = place.parameter, place.names
    if sum(size > 1 for size in parameter.shape) < 2 or isinstance(place.module, nn.LayerNorm):
        return Role("vectors", {}, "no matrix")
    if any("lora" in name.lower() for name in (*place.path, place.entry)) or _is_low_rank_pair(place):
        return Role("lora", {"flatten": False} if parameter.ndim > 2 else {}, "factor of a low-rank update")
    if _ROUTER.match(layer) and place.rows < place.columns:
        return Role("output", {}, "router")
    if in_attention and place.linear and _PROJECTION.match(layer):
        return Role("matrices", {"transposed": True} if place.transposed else {}, "output projection of attention")
    if _is_layer(place):
        return _layer(place, layers)
    if place.in_block and parameter.ndim > 2 and not _TABLE.search(layer):
        return Role("matrices", {"flatten": False}, f"{parameter.shape[:-2].numel()} matrices, as experts")
    if place.in_block and parameter.ndim == 2 and re.match(r"^(w\d*(_|$)|weight$)", place.entry.lower()):
        return Role("matrices", {}, "matrix of a block")
    return Role("other", {}, "of no known layer")


def _layer(place: Location, layers: list[Location]) -> Role:
    several = any(layer.in_block for layer in layers)
    middle = any(place is layer for layer in layers[1:-1])
    convolution = isinstance(place.module, _ConvNd)
    if isinstance(place.module, _ConvTransposeNd) or (convolution and getattr(place.module, "groups", 1) > 1):
        return Role("other", {}, "convolution in groups or transposed")
    if place.in_block if several else middle:
        if convolution:
            return Role("matrices", {"flatten": True}, "convolution of a block")
        return Role("matrices", {"transposed": True} if place.transposed else {}, "hidden layer")
    if place is layers[-1]:
        return Role("output", {}, "last layer")
    return Role("embeddings" if place is layers[0] else "output", {}, "outside of the blocks")


def _is_low_rank_pair(place: Location) -> bool:
    """Whether a parameter is A (r, n) or B (m, r) of its module."""
    a, b = (getattr(place.module, name, None) for name in ("A", "B"))
    if place.entry not in ("A", "B") or not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.ndim == b.ndim == 2 and a.shape[0] == b.shape[1]


# Queries, keys and values


def _attention(place: Location, beside: dict[str, Location], heads: Heads) -> Role | None:
    """The role of a weight of queries, keys or values; None if it is none."""
    part = next((part for part, other in beside.items() if other is place), None)
    if part is None or (part != "qkv" and not ("q" in beside and beside.keys() & {"k", "kv"})):
        return None
    if _heads_are_second(place, heads):
        return Role("attention", {"flatten": True}, f"{part}, one matrix: heads along the second axis")
    if place.parameter.ndim == 3:  # (H, d, m)
        return Role("attention", {"flatten": False}, f"{part}: {len(place.parameter)} heads along the first axis")
    number, groups = heads if isinstance(heads, tuple) else (heads, None)
    number = number or _integer(place.owners, _NUM_HEADS)
    split = _split_of_fused(place, number, groups) if part == "qkv" else _split_of_one(place, part, beside, number)
    if split is None and part == "qkv" and place.rows != 3 * place.columns:
        return None  # such as the input projection of a state-space layer
    if split is None and heads is not None:
        raise ValueError(
            f"heads: expected a number of heads that divides the {place.rows} rows of {place.name}, got {heads}; pass "
            "H, "
            "or (H, g) with g heads of keys and values"
        )
    layout = {"transposed": True} if place.transposed else {}
    if split is None:
        whole = "3 matrices" if part == "qkv" else "one matrix"
        return Role("attention", {**layout, "heads": 3 if part == "qkv" else 1}, f"{part}, {whole}: pass heads=H")
    return Role("attention", {**layout, "heads": split}, f"{part}, heads: {split}")


def _heads_are_second(place: Location, heads: Heads) -> bool:
    """Whether a parameter is (d, H, m), as in XLNet, and not (H, d, m)."""
    number = (heads[0] if isinstance(heads, tuple) else heads) or _integer(place.owners, _NUM_HEADS)
    shape = place.parameter.shape
    return len(shape) == 3 and number is not None and shape[1] == number < shape[0]


def _split_of_fused(place: Location, number: int | None, groups: int | None) -> int | tuple[int, int, int] | None:
    """The blocks of queries, keys and values in one weight of (H + 2g)·m rows; None if they are not known."""
    rows, columns = place.rows, place.columns
    if number is None:
        return None
    if groups is None and rows == 3 * columns:
        groups = number
    groups = groups or _integer(place.owners, _KEY_GROUPS)
    if groups is None and columns % number == 0 and rows % (columns // number) == 0:
        groups = (rows * number // columns - number) // 2
    if groups is None or groups < 1 or rows % (number + 2 * groups):
        return None
    return 3 * number if groups == number else (number, groups, groups)


def _split_of_one(place: Location, part: str, beside: dict[str, Location], number: int | None) -> int | None:
    """The heads of queries, keys or values in a weight of their own: keys have as many rows a head as queries."""
    queries, keys = beside["q"], beside.get("k", beside.get("kv"))
    if number is None or keys is None or queries.rows % number:
        return None
    rows_of_head = queries.rows // number * (1 if "k" in beside else 2)
    own = number if part == "q" else keys.rows // rows_of_head * (2 if part == "kv" else 1)
    return own if own and keys.rows % rows_of_head == 0 and place.rows % own == 0 else None


def _integer(owners: list[nn.Module], names: tuple[str, ...]) -> int | None:
    """The first positive integer that a module, or its configuration, has under one of the names."""
    for owner in owners:
        for source in (owner, getattr(owner, "config", None)):
            for name in names:
                value = getattr(source, name, None)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
    return None
