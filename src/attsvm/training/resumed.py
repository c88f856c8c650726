"""What a run that is resumed keeps: its settings, unless others are given, and what cannot be changed."""

from collections.abc import Collection, Sequence
from typing import Any

from attsvm._utils.checks import check_flag
from attsvm._utils.extensions import named_by_file
from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.results import NOT_RECORDED
from attsvm.training.attention.registry import ATTENTIONS
from attsvm.training.run import Run


def setting_of(name: str, given: Any, resumed: Any, default: Any) -> Any:
    """A setting that is given, or that of the run that is resumed; otherwise the default, as for runs of 0.2.

    Raises ProblemError if that run was trained with several.
    """
    if given is not None:
        return given
    if resumed is None or getattr(resumed, "start", None) == NOT_RECORDED:
        return default
    found = getattr(resumed, name)
    if found == NOT_RECORDED:
        raise ProblemError(
            f"{name.removesuffix('_name')}: expected one, because the parts of the run had different ones"
        )
    return found


def parse_loss_of(given: Any, resumed: Any, num_classes: int | None) -> tuple[str, OutputLoss]:
    """The name, "custom" for a function or an object, and the loss that is given, or those of the run that is resumed.

    Raises ProblemError if it does not fit, or the run is of a file that does not hold it.
    """
    if given is not None:
        return given if isinstance(given, str) else "custom", parse_loss(given, num_classes)
    name = setting_of("loss_name", None, resumed, "logistic")
    found = getattr(resumed, "live_loss", None) if name == "custom" else name
    if found is None:
        raise ProblemError("loss: expected that of the run that is resumed, which is no part of it")
    with named_by_file():
        return name, parse_loss(found, num_classes)


def parse_head_of(given: Any, resumed: Any) -> Head:
    """The prediction head that is given, or that of the run that is resumed; linear by default."""
    if given is not None or resumed is None:
        return parse_head(Linear() if given is None else given)
    with named_by_file():
        return parse_head(resumed.live_head or resumed.head)


def parse_train_head(given: bool | None, resumed: Any, of_attention: Collection[str]) -> bool:
    """Whether the head is trained: what is given, or whether the run that is resumed trained it.

    Raises ProblemError if that run trained it, and it is to keep its values.
    """
    if given is not None:
        check_flag("train_head", given)
    trained = resumed is not None and bool(resumed.history.keys() & resumed.parameters.keys() - of_attention)
    if trained and given is False:
        raise ProblemError(
            "train_head: expected True, as in the run that is resumed, got False; pass its weights as init, and its "
            "head in the problem, to begin a new run"
        )
    return trained or bool(given)


def rank_of(given: int | None, resumed: Any, kind: Any) -> int | None:
    """The rank that is given, or that of the run that is resumed, if its attention has one."""
    if given is not None or resumed is None or kind != resumed.attention or not ATTENTIONS.find(kind).takes_rank:
        return given
    return int(resumed.parameters["K" if "K" in resumed.parameters else "W"].shape[-1])


def parse_fixed(fixed: Sequence[str] | None, resumed: Run | None) -> tuple[str, ...]:
    """The names of the parameters that keep their initial values.

    Raises ProblemError if they are no sequence of names, or not those of the run that is resumed.
    """
    earlier = () if resumed is None else resumed.fixed
    if fixed is None:
        return earlier
    if isinstance(fixed, str) or not (isinstance(fixed, Sequence) and all(isinstance(name, str) for name in fixed)):
        raise ProblemError(f"fixed: expected a sequence of names of parameters, got {fixed!r}")
    if resumed is not None and set(fixed) != set(earlier):
        raise ProblemError(
            f"fixed: expected {', '.join(earlier) or 'none'}, as in the run that is resumed, got "
            f"{', '.join(fixed) or 'none'}; pass a dict of parameters as init to begin a new run"
        )
    return tuple(fixed)


def parse_map_name(name: str | None, resumed: Run | None) -> str:
    """The map that is given, or that of the run that is resumed; softmax by default.

    Raises ProblemError if both are given and differ.
    """
    if resumed is None:
        return "softmax" if name is None else name
    if name not in (None, resumed.map):
        raise ProblemError(
            f"map: expected {resumed.map}, as in the run that is resumed, got {name!r}; pass its parameters as init to "
            "begin a new run"
        )
    return resumed.map
