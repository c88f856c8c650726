"""Which training to take for the Att-SVM of a norm, by the table of what was measured."""

from collections.abc import Callable
from dataclasses import dataclass

from attsvm.norms import Lp, Norm
from attsvm.norms.factors import Gamma2
from attsvm.optimizers import Decaying, Optimizer, mirror_descent, row_descent, steepest_descent
from attsvm.theory import Found, Row, table
from attsvm.training import ATTENTIONS


def _mirror_descent(norm: Norm, attention: str) -> Optimizer:
    assert isinstance(norm, Lp)  # the rows of mirror descent are about these norms
    return mirror_descent(p=norm.p)


def _steepest_descent(norm: Norm, attention: str) -> Optimizer:
    if attention == "factored":
        return row_descent(Decaying(0.02, 100, 0.5))
    return steepest_descent(norm=norm, learning_rate=Decaying(0.1, 1000, 0.5))


_MAKERS: dict[str, Callable[[Norm, str], Optimizer]] = {
    "gradient": lambda norm, attention: ATTENTIONS.find(attention).of_rank(1).default_optimizer(),
    "mirror": _mirror_descent,
    "steepest": _steepest_descent,
}
"""Kinds of steps in the table of standings, and an optimiser that was measured with such steps for a norm."""


@dataclass(frozen=True)
class MeasuredTraining:
    """Training towards the Att-SVM of a norm, and how near such runs were measured to come.

    Attributes
    ----------
    attention : str
        ``"combined"``, ``"factored"`` or ``"prompt"``, as for :func:`attsvm.train`.
    optimizer : Optimizer
    measured : str
        The measured margin ratios of such runs and their command; empty if such runs were not measured.
    """

    attention: str
    optimizer: Optimizer
    measured: str = ""


def trained_by(norm: Norm, has_queries: bool) -> MeasuredTraining:
    """The measured training with the largest mean margin ratio in a norm, otherwise steepest descent in it."""
    rows = [row for row in table() if _fits(row, norm, has_queries)]
    if not rows:
        attention = "combined" if has_queries else "prompt"
        return MeasuredTraining(attention, _steepest_descent(norm, attention))
    best = max(rows, key=lambda row: row.last)
    return MeasuredTraining(best.attention, _MAKERS[best.steps.kind](norm, best.attention), best.text())


def _fits(row: Row, norm: Norm, has_queries: bool) -> bool:
    """Whether a row is about full batches without decay and momentum, one softmax head, a fixed prediction head."""
    plain = (row.model, row.heads, row.columns, row.map) == ("fixed head", "one", "all", "softmax")
    plain = plain and (row.decay, row.batch, row.momentum, row.radius) == (0.0, (), (0.0, 0.0), ())
    layers = ("combined", "factored") if has_queries else ("prompt",)
    usual = (row.steps.normalised, row.steps.scope) in (("step", "all"), ("step", "heads"))
    known = row.found == Found.MEASURED and row.steps.kind in _MAKERS and usual
    # of the steps on factors one is taken
    known = known and (row.steps.factors == "no" or (row.norm == Gamma2().name and row.steps.factors == "short"))
    return plain and known and row.attention in layers and row.norm == norm.name
