"""Optimizers written to a file and read back."""

from dataclasses import asdict
from typing import Any

from attsvm.errors import ProblemError
from attsvm.norms import Norm, read_norm, written_norm
from attsvm.optimizers.foreign import rule_of
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.polar import NewtonSchulz
from attsvm.optimizers.registry import OPTIMIZERS, parse_optimizer
from attsvm.optimizers.transformations import Decaying, LearningRate


def learning_rate_of(optimizer: Any) -> tuple[float | None, str]:
    """The first learning rate and its schedule: "constant", the text of a :class:`Decaying`, or "custom".

    "relative" follows where the weights multiply or divide it. None where the rate is not known.
    """
    arguments = getattr(optimizer, "arguments", None) or {}
    parts = getattr(rule_of(optimizer), "parts", ())
    in_chain = next((part.rate for part in parts if isinstance(part, LearningRate)), None)
    rate = arguments.get("learning_rate", in_chain)
    relative = ", relative" if any(part.degree for part in parts) else ""
    if isinstance(rate, Decaying):
        return rate.rate, repr(rate) + relative
    return (None, "custom") if rate is None or callable(rate) else (float(rate), "constant" + relative)


_PARTS: dict[str, Any] = {"decaying": Decaying, "newton_schulz": NewtonSchulz}
"""Dataclasses among the arguments, by the key that their fields are written under."""


def configuration(optimizer: Any) -> dict[str, Any] | None:
    """What a file needs to rebuild an optimizer: its name and arguments. None where a part cannot be written.

    See Also
    --------
    attsvm.optimizers.from_configuration

    Examples
    --------
    >>> from attsvm.optimizers import configuration, normalized_gradient_descent
    >>> configuration(normalized_gradient_descent(0.1))["name"]
    'normalized_gradient_descent'
    """
    if not isinstance(optimizer, Optimizer) or optimizer.arguments is None:
        return None
    written: dict[str, Any] = {}
    for name, value in optimizer.arguments.items():
        if isinstance(value, Norm):
            written[name] = {"norm": written_norm(value)}
            continue
        part = next((key for key, kind in _PARTS.items() if isinstance(value, kind)), None)
        if part is not None:
            written[name] = {part: asdict(value)}
            continue
        inner = configuration(value) if callable(getattr(value, "update", None)) else value
        if callable(inner) or (inner is None and value is not None):
            return None
        written[name] = inner
    return {"name": optimizer.name, "arguments": written}


def from_configuration(written: dict[str, Any]) -> Any:
    """The optimizer that :func:`configuration` wrote.

    Raises
    ------
    ProblemError
        If the name is unknown or the arguments do not fit.

    See Also
    --------
    attsvm.optimizers.configuration, attsvm.optimizers.parse_optimizer

    Examples
    --------
    >>> from attsvm.optimizers import configuration, from_configuration, mirror_descent
    >>> from_configuration(configuration(mirror_descent(learning_rate=0.1, p=3))).norm.name
    'l3'
    """
    if not isinstance(written, dict) or not isinstance(written.get("arguments"), dict):
        raise ProblemError("optimizer: expected a name and arguments in the file, got something else")
    name = str(written.get("name"))
    if name not in OPTIMIZERS and ":" not in name:
        raise ProblemError(f"optimizer: expected one of {', '.join(OPTIMIZERS.names())}, got {name!r}")
    try:
        return parse_optimizer(name, **{key: _read(value) for key, value in written["arguments"].items()})
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProblemError(f"optimizer: {name} cannot be rebuilt from the file ({error})") from None


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "norm" in value:
        return read_norm(value["norm"])
    part = next((key for key in _PARTS if key in value), None)
    return from_configuration(value) if part is None else _PARTS[part](**value[part])
