"""Parameter groups of a whole transformer: an optimiser of this package for its matrices, AdamW for the rest."""

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from attsvm.torch.learning_rate import rate_of_weights
from attsvm.torch.matrix_descent import ColumnDescent, MatrixDescent, RowDescent
from attsvm.torch.mirror_descent import MirrorDescent
from attsvm.torch.optimizer import ADAMW_ALONE, MirrorOptimizer
from attsvm.torch.options import OPTIONS, check_names, number, read_option
from attsvm.torch.roles import Heads, Location, Role, roles_of
from attsvm.torch.sign_descent import SignDescent
from attsvm.torch.spectral_descent import SpectralDescent

_LIKE_MUON: dict[str, Any] = {"momentum": 0.95, "nesterov": True, "scale": "match_rms"}
_RECIPES: dict[type[MirrorOptimizer], dict[str, Any]] = {
    SpectralDescent: _LIKE_MUON,
    RowDescent: _LIKE_MUON,
    ColumnDescent: _LIKE_MUON,
    SignDescent: {"momentum": 0.9},
    MirrorDescent: {"p": 1.1, "normalize": True, "momentum": 0.9},
}


class _Row(NamedTuple):
    label: str
    place: Location
    role: Role


class ParamGroups(list[dict[str, Any]]):
    """Parameter groups that print what they hold, and ``left_out``, the names of frozen parameters."""

    def __init__(self, groups: Iterable[dict[str, Any]], rows: list[_Row], left_out: list[str]) -> None:
        super().__init__(groups)
        self._rows, self.left_out = rows, left_out

    def __repr__(self) -> str:
        table = [("group", "entries", "options", "parameters", "because")]
        for group in self:
            given = {name: x for name, x in group.items() if name not in ("params", "name")}
            options = ", ".join(f"{name}={_short(x)}" for name, x in given.items())
            names = {name for name, _ in group["params"]}
            lines: dict[tuple[str, str], list[Tensor]] = {}
            for _, place, role in self._rows:
                if place.name in names:
                    name = "gains, biases and other vectors" if role.kind == "vectors" else place.pattern
                    lines.setdefault((name, role.why), []).append(place.parameter)
            first = (group["name"], f"{sum(x.numel() for _, x in group['params']):,}", options)
            for (name, why), tensors in lines.items():
                shapes = " ".join(dict.fromkeys(str(tuple(x.shape)) for x in tensors))
                times = f"{len(tensors)} × " if len(tensors) > 1 else ""
                table.append((*first, f"{name}  {times}{shapes}", why))
                first = ("", "", "")
        if self.left_out:
            table.append(("left out", "", "", f"{len(self.left_out)} frozen parameters", ""))
        widths = [max(len(row[column]) for row in table) for column in range(5)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def param_groups_of(
    model: nn.Module,
    optimizer: type[MirrorOptimizer] = SpectralDescent,
    *,
    lr: float | None = None,
    where: Literal["matrices", "attention"] = "matrices",
    heads: Heads = None,
    **options: Any,
) -> ParamGroups:
    """Parameter groups of a transformer: its matrices for an optimiser from this package, AdamW for the rest.

    Print the result to see what was decided, and why. It is a list of parameter groups, which may be changed.

    Parameters
    ----------
    model : torch.nn.Module
        Queries, keys and values are found by module, name and shape: `torch.nn.MultiheadAttention`, one weight for all
        three or one each, grouped queries, and the transposed weights of GPT-2. Linear layers and convolutions inside
        numbered blocks, experts and factors of LoRA are matrices, too. Embeddings, tied ones as well, the output layer,
        routers, layers outside of the blocks, gains and biases are for AdamW. So is what is not recognised. Frozen
        parameters are left out.
    optimizer : type, default SpectralDescent
        The optimiser that the groups are for.
    lr : float, optional
        A learning rate of AdamW. Needed by :class:`attsvm.torch.MirrorDescent` and :class:`attsvm.torch.SignDescent`,
        whose rates differ: they are computed from it, the weights as they are now, and the momentum, to two digits.
        For the others the ``lr`` of the optimiser is that of AdamW, for all groups. With another ``scale`` than
        "match_rms" steps have another length, and the rate given here is that of the groups for AdamW only.
    where : {"matrices", "attention"}, default "matrices"
        "attention" leaves only queries, keys and values to the optimiser.
    heads : int or (int, int), optional
        Number of heads of the attention layers, or (H, g) with g heads of keys and values, where the modules do not
        say it. Each head is a matrix of its own.
    **options
        Options of the groups that are not for AdamW, in place of the recommended ones: momentum 0.95 with Nesterov and
        ``scale="match_rms"`` for matrices, ``p=1.1``, ``normalize=True`` and momentum 0.9 for mirror descent.

    Returns
    -------
    list of dict
        A list of dictionaries with ``params`` (names and parameters), ``name`` and options. Groups of gains and biases
        have ``weight_decay=0``. Its attribute ``left_out`` holds the names of frozen parameters.

    Raises
    ------
    ValueError
        If ``heads`` does not fit the model, or a value is out of range.
    TypeError
        If the model is no module, or an option is unknown.

    See Also
    --------
    attsvm.torch.SpectralDescent, attsvm.torch.MirrorDescent
    attsvm.torch.lr_from_adam : A rate from the gradients of one batch.

    Notes
    -----
    Mirror descent with p < 2 does not move weights away from zero in useful time: tensors that are zero are for AdamW.
    Recognition is by name where a module's class does not say what it is. It is complete for the models that the tests
    name, and an assumption for others: read the table.

    Examples
    --------
    >>> import torch
    >>> from attsvm.torch import SpectralDescent, param_groups_of
    >>> layer = torch.nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16)
    >>> model = torch.nn.Sequential(torch.nn.Embedding(10, 8), layer, torch.nn.Linear(8, 3))
    >>> groups = param_groups_of(model)
    >>> [(group["name"], group.get("heads"), len(group["params"])) for group in groups]
    [('attention', 6, 1), ('matrices', None, 3), ('embeddings', None, 1), ('output', None, 1), ('vectors', None, 9)]
    >>> optimizer = SpectralDescent(groups, lr=1e-3)
    """
    _check(model, optimizer, lr, where, heads)
    check_names("param_groups_of", options, [name for name in OPTIONS if name not in {"adamw", *ADAMW_ALONE}])
    given = {**_RECIPES[optimizer], **{name: read_option(name, value) for name, value in options.items()}}
    rows, left_out = [], []
    for place, role in roles_of(model, heads):
        if not place.parameter.requires_grad:
            left_out.append(place.name)
        else:
            rows.append(_Row(_label(place, role, optimizer, where, given), place, role))
    # one rate for the same layer of all blocks; layers that start at zero have that of the size of the others
    alike: dict[tuple[str, str], list[Tensor]] = {}
    for label, place, _ in rows:
        alike.setdefault((label, place.pattern), []).append(place.parameter)
    sizes = {key: _rms(tensors) for key, tensors in alike.items()}
    usual = _rms([x for (label, _), tensors in alike.items() if label in _TAKEN for x in tensors if x.any()])
    found: dict[Any, dict[str, Any]] = {}
    for label, place, role in sorted(rows, key=lambda row: _ORDER.index(row.label)):
        size = sizes[label, place.pattern] or usual
        chosen = _options(label, place.parameter.numel(), size, role, optimizer, lr, given)
        key = (label, *(chosen.items()))
        group = found.setdefault(key, {"params": [], "name": label, **chosen})
        group["params"].append((place.name, place.parameter))
    if not any("adamw" not in group for group in found.values()):
        raise ValueError("model: expected trainable matrices in hidden layers, found none")
    return ParamGroups(found.values(), rows, left_out)


_TAKEN = ("attention", "matrices", "lora")
_ORDER = ("attention", "matrices", "lora", "zero at the start", "others", "embeddings", "output", "other", "vectors")


def _check(model: Any, optimizer: Any, lr: Any, where: Any, heads: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, type) or optimizer not in _RECIPES:
        raise ValueError(f"optimizer: expected a class of attsvm.torch such as SpectralDescent, got {optimizer!r}")
    if where not in ("matrices", "attention"):
        raise ValueError(f"where: expected 'matrices' or 'attention', got {where!r}")
    if lr is None and optimizer in (MirrorDescent, SignDescent):
        raise ValueError(f"lr: expected the rate of AdamW, from which that of {optimizer.__name__} is computed")
    if lr is not None and not 0.0 < number(lr) < math.inf:
        raise ValueError(f"lr: expected a number > 0, got {lr!r}")
    numbers = heads if isinstance(heads, tuple) and len(heads) == 2 else (heads,)
    if heads is not None and not all(type(one) is int and one >= 1 for one in numbers):
        raise ValueError(f"heads: expected an integer >= 1, or two of them as (H, g), got {heads!r}")


def _rms(tensors: list[Tensor]) -> float:
    squares = sum(float(x.detach().double().square().sum()) for x in tensors)
    return math.sqrt(squares / max(1, sum(x.numel() for x in tensors)))


def _label(place: Location, role: Role, optimizer: type[MirrorOptimizer], where: str, given: dict[str, Any]) -> str:
    if role.kind not in _TAKEN:
        return role.kind
    if where == "attention" and role.kind != "attention":
        return "others"
    if "p" in given and float(given["p"]) < 2.0 and not given.get("linear") and not place.parameter.any():
        return "zero at the start"
    return role.kind


def _options(
    label: str,
    count: int,
    size: float,
    role: Role,
    optimizer: type[MirrorOptimizer],
    lr: float | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """The options of the group of a parameter with a number of entries of a usual size."""
    if label not in _TAKEN:
        decay = {"weight_decay": 0.0} if label == "vectors" else {}
        return {"adamw": True, **({} if lr is None else {"lr": float(lr)}), **decay}
    chosen = dict(given)
    if issubclass(optimizer, MatrixDescent):
        chosen = {**role.layout, **chosen}
        return chosen if lr is None or chosen["scale"] != "match_rms" else {**chosen, "lr": float(lr)}
    if lr is not None:  # rounded, so that similar layers are one group
        chosen["lr"] = float(f"{rate_of_weights(count, size, lr, optimizer, chosen):.2g}")
    return chosen
