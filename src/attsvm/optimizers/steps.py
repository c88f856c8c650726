"""The steps of an optimizer as a record, which runs save and the table of standings has as columns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from attsvm.norms import Norm, parse_norm, read_norm, written_norm

ARGUMENTS: dict[str, Any] = {}
"""Dataclasses among the arguments of optimizers, schedules too, by the key that their fields are written under."""


@dataclass(frozen=True)
class Steps:
    """The steps of an optimizer, as far as the limit of a run depends on them.

    Attributes
    ----------
    kind : str
        "gradient", "log gradient", "mirror", "steepest", "bilinear", "adam", "muon" (with coefficients that do not
        converge), "unit" (in the table only: steps of length one with weight decay), the import path of an optimizer of
        optax with its default options and without weight decay, such as "optax.adam", or "unknown".
    norm : Norm or None
        The norm in which they descend in each parameter, or, if the scope says so, in several together.
    normalised : str
        What the gradient is divided by: "step", its norm; "average", the running average of its norms; "no", nothing.
    momentum : float or None
        β of the decaying sum of gradients that the steps follow; None if it is not known.
    scope : str
        Of one norm: "all" parameters, "each" parameter; for steepest descent each matrix ("heads"), the matrices of all
        attention heads side by side ("fused"), or those of K and Q, too ("kq").
    factors : str
        "any" if the limit depends on how far a step on K and Q changes the logits, and of steps whose changes are
        known, "short", "between" or "long"; else "no".
    shared_keys : bool
        Whether several attention heads share K.
    schedule : float, Decaying or None
        The learning rate, or its schedule; None for another function of the number of steps.
    relative : bool
        Whether the weights multiply or divide the steps.

    See Also
    --------
    attsvm.optimizers.Limit

    Examples
    --------
    >>> from attsvm.optimizers import Decaying, mirror_descent
    >>> steps = mirror_descent(p=1.75, learning_rate=Decaying(0.1, 100)).steps
    >>> str(steps), steps.kind, steps.normalised, steps.learning_rate
    ('normalized mirror descent', 'mirror', 'step', 0.1)
    """

    kind: str = "unknown"
    norm: Norm | None = None
    normalised: str = "no"
    momentum: float | None = 0.0
    scope: str = "all"
    factors: str = "no"
    shared_keys: bool = False
    schedule: Any = None
    relative: bool = False

    @property
    def learning_rate(self) -> float | None:
        """The rate of the first step; None if it is not known."""
        rate: float | None = getattr(self.schedule, "rate", self.schedule)
        return rate

    @property
    def constant(self) -> float | None:
        """The learning rate if all steps have the same, not multiplied by the size of the weights; else None."""
        return self.schedule if isinstance(self.schedule, float) and not self.relative else None

    @property
    def power(self) -> float | None:
        """The power of the number of steps like which the learning rates decay; None if it is not known."""
        power: float | None = getattr(self.schedule, "power", None if self.schedule is None else 0.0)
        return power

    @property
    def family(self) -> "Steps":
        """The steps of a row of the table of standings: without momentum, of which it has a range, and schedule."""
        return replace(self, momentum=0.0, schedule=None, relative=False)

    @property
    def _kind_in_words(self) -> str:
        return self.kind if "." in self.kind else f"{self.kind} descent"

    def __str__(self) -> str:
        words = {"muon": "muon as shipped", "adam": "adam", "unit": "unit steps"}.get(self.kind, self._kind_in_words)
        named = self.kind in ("gradient", "mirror") or "." in self.kind
        words = f"normalized {words}" if self.normalised != "no" and named else words
        scopes = {"each": "of each parameter", "fused": "of heads side by side", "kq": "of K and Q together"}
        words += f" in {self.norm.name}" if self.norm and self.kind in ("steepest", "bilinear") else ""
        words += f" {scope}" if (scope := scopes.get(self.scope, "of all" if self.kind == "unit" else "")) else ""
        words += ", running average" if self.normalised == "average" else ""
        words += f", {self.factors}" if self.factors not in ("no", "any") else ""
        return words + (", shared keys" if self.shared_keys else "")


def written_steps(steps: Steps) -> dict[str, Any]:
    """The fields of steps that are not those by default, as JSON-able data."""
    found = {one.name: getattr(steps, one.name) for one in fields(Steps) if getattr(steps, one.name) != one.default}
    # a schedule under the key of its class, as among the arguments of an optimizer
    key = next((key for key, kind in ARGUMENTS.items() if isinstance(steps.schedule, kind)), None)
    norm = {} if steps.norm is None else {"norm": written_norm(steps.norm)}
    return found | norm | ({} if key is None else {"schedule": {key: asdict(steps.schedule)}})


def read_steps(written: Mapping[str, Any]) -> Steps:
    """The steps that :func:`written_steps` wrote, or that a row of the table has, where norms are names."""
    read = dict(written)
    if "norm" in read:
        read["norm"] = parse_norm(read["norm"]) if isinstance(read["norm"], str) else read_norm(read["norm"])
    if isinstance(schedule := read.get("schedule"), Mapping):
        read["schedule"] = next(ARGUMENTS[key](**value) for key, value in schedule.items())
    return Steps(**read)
