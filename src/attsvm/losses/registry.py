"""The losses that are known by name, and how ``loss=`` is read."""

from collections.abc import Callable

import jax

from attsvm._utils.extensions import Registry
from attsvm.errors import ProblemError
from attsvm.losses.base import OutputLoss, Outputs
from attsvm.losses.differentiated import Differentiated

Array = jax.Array


def _loss(found: object) -> OutputLoss:
    if isinstance(found, OutputLoss):
        return found
    if isinstance(found, type) or not callable(found):
        kind = found.__name__ if isinstance(found, type) else type(found).__name__
        raise ProblemError(f"expected a Loss or a callable m -> loss(m), got {kind}")
    return Differentiated(found)


LOSSES: Registry[OutputLoss] = Registry("loss", group="attsvm.losses", package="attsvm.losses", check=_loss)


def parse_loss(loss: str | OutputLoss | Callable[[Array], Array], num_classes: int | None) -> OutputLoss:
    """Read a loss.

    Parameters
    ----------
    loss : str, OutputLoss or callable
        A registered name, an import path ``package.module:name``, a loss, or a function m ↦ ℓ(m) of the margin in JAX.
    num_classes : int or None
        None for labels ±1.

    Raises
    ------
    ProblemError
        If the name is unknown, or the loss does not fit the labels.

    See Also
    --------
    attsvm.losses.Loss, attsvm.losses.LOSSES

    Examples
    --------
    >>> from attsvm.losses import parse_loss
    >>> parse_loss("logistic", None).name
    'logistic'
    """
    if isinstance(loss, str):
        parsed = LOSSES.find(loss)
    else:
        try:
            parsed = _loss(loss)
        except ProblemError as error:
            raise ProblemError(f"loss: {error}, or one of {', '.join(LOSSES.names())}") from None
    if (parsed.takes is Outputs.CLASS_SCORES) == (num_classes is None):
        expected = Outputs.MARGIN if num_classes is None else Outputs.CLASS_SCORES
        labels = "±1" if num_classes is None else "0..C-1"
        such = "logistic" if num_classes is None else "cross_entropy"
        raise ProblemError(
            f"loss: expected a loss of the {expected}, such as {such}, to fit the labels {labels}, got {parsed.name}"
        )
    return parsed
