"""The theorem that applies to a fit, and which of its hypotheses hold."""

from collections.abc import Iterator
from typing import Any

from attsvm._fit.result import Fit
from attsvm.measures import in_cone
from attsvm.selection import is_locally_optimal
from attsvm.svm import Solution
from attsvm.theory import local_convergence_conditions

PAPER = "Tarzanagh, Li, Zhang and Oymak (2023)"
COMBINED_PAPER = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), local convergence of gradient descent"

CONE_UP_TO = 200_000
"""The cone is computed for at most this many logits, because the bounds are arrays of 24 times this size."""


def theory_numbers(fit: Fit, chosen: Solution) -> dict[str, Any]:
    """The field ``theory`` of ``result.json`` for a fixed head, with the Att-SVM of its trained selection.

    A hypothesis is a sentence and whether it holds: true, false, or None if it was not decided or not checked.
    """
    theorem = COMBINED_PAPER if fit.train.has_queries else f"{PAPER}, Theorem 3"
    return {
        "theorem": f"{theorem}: gradient descent on the attention with a fixed head",
        "conclusion": "the norm of the weights grows without bound and their direction converges to the Att-SVM of the "
        "selected tokens",
        "hypotheses": [{"statement": said, "holds": holds} for said, holds in _hypotheses(fit, chosen)],
    }


def theory_sentence(theory: dict[str, Any]) -> str:
    """Whether the theorem applies: which of its hypotheses do not hold, and which are not decided."""
    total = len(theory["hypotheses"])
    failing = sum(one["holds"] is False for one in theory["hypotheses"])
    open_ones = sum(one["holds"] is None for one in theory["hypotheses"])
    name = theory["theorem"].partition(":")[0]
    if not failing and not open_ones:
        return f"All hypotheses of the theorem ({name}) hold."
    parts = [f"{failing} of its {total} hypotheses {'does' if failing == 1 else 'do'} not hold"] if failing else []
    parts += [f"{open_ones} of {total} could not be decided"] if open_ones else []
    return f"The theorem ({name}) does not say that this is the limit: {' and '.join(parts)}."


def _hypotheses(fit: Fit, chosen: Solution) -> Iterator[tuple[str, bool | None]]:
    separable = {"optimal": True, "infeasible": False}.get(str(chosen.status))
    locally = bool(is_locally_optimal(fit.train, fit.run.selected, chosen.support)) if separable else separable
    yield "the loss decreases strictly and is smooth (logistic loss)", True
    yield "the selected tokens are separable from the others", separable
    yield "the selection is locally optimal: every support token has a lower score", locally
    yield (
        "the weights reach a cone around the Att-SVM direction, at a norm from which training cannot leave it",
        locally and _in_cone(fit, chosen),
    )
    yield (
        "the steps are those of gradient descent with a constant learning rate of at most 1/L "
        f"(here: {fit.settings['optimizer']}, {fit.settings['step_size']})",
        False,  # every run of this command normalises its gradients, and no theorem covers that with growing steps
    )


def _in_cone(fit: Fit, chosen: Solution) -> bool | None:
    """Whether the final weights are in a cone of proved constants; outside of it nothing is proved."""
    if fit.train.canonical.allowed.size > CONE_UP_TO:
        return None
    cone = local_convergence_conditions(fit.train, fit.run.selected)
    if not cone.holds:
        return None
    inside = in_cone(fit.run.weights, chosen.direction, float(cone.opening), float(cone.radius))
    return True if inside else None
