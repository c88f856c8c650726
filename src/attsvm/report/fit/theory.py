"""Which theorem speaks of a fit, and which of its hypotheses were found to hold."""

from collections.abc import Iterator
from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.measures import in_cone
from attsvm.report.words import number
from attsvm.selection import is_locally_optimal
from attsvm.theory import joint_conditions, local_convergence_conditions

PAPER = "Tarzanagh, Li, Zhang and Oymak (2023)"
COMBINED_PAPER = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), local convergence of gradient descent"

CONE_UP_TO = 200_000
"""The cone is computed for at most this many logits, because the bounds are arrays of 24 times this size."""

SWAPS_UP_TO = 10_000_000
"""The margins after a swap are computed up to this many numbers in their problems, which takes a few seconds."""


def theory_numbers(fit: Fit) -> dict[str, Any]:
    """The field ``theory`` of ``result.json``.

    A hypothesis is a sentence and whether it holds: true, false, or None if it was not decided or not checked.
    """
    joint = fit.head_svm is not None
    said = _about_joint() if joint else _about_fixed_head(fit)
    found = _joint(fit) if joint else _fixed_head(fit)
    return {**said, "hypotheses": [{"statement": statement, "holds": holds} for statement, holds in found]}


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


def _about_fixed_head(fit: Fit) -> dict[str, str]:
    theorem = COMBINED_PAPER if fit.train.has_queries else f"{PAPER}, Theorem 3"
    return {
        "theorem": f"{theorem}: gradient descent on the attention with a fixed head",
        "conclusion": "the norm of the weights grows without bound and their direction converges to the Att-SVM of the "
        "selected tokens",
    }


def _fixed_head(fit: Fit) -> Iterator[tuple[str, bool | None]]:
    separable = _separable(fit.plain.status)
    locally = bool(is_locally_optimal(fit.train, fit.run.selected, fit.plain.support)) if separable else separable
    yield "the loss decreases strictly and is smooth (logistic loss)", True
    yield "the selected tokens are separable from the others", separable
    yield "the selection is locally optimal: every support token has a lower score", locally
    yield (
        "the weights reach a cone around the Att-SVM direction, at a norm from which training cannot leave it",
        locally and _in_cone(fit),
    )
    yield (
        "the steps are those of gradient descent with a constant learning rate of at most 1/L "
        f"(here: {fit.settings['optimizer']}, {fit.settings['step_size']})",
        False,  # every run of this command normalises its gradients, and no theorem covers that with growing steps
    )


def _in_cone(fit: Fit) -> bool | None:
    """Whether the final weights are in a cone of proved constants; outside of it nothing is proved."""
    if fit.train.canonical.allowed.size > CONE_UP_TO:
        return None
    cone = local_convergence_conditions(fit.train, fit.run.selected)
    if not cone.holds:
        return None
    inside = in_cone(fit.run.weights, fit.plain.direction, float(cone.opening), float(cone.radius))
    return True if inside else None


def _about_joint() -> dict[str, str]:
    return {
        "theorem": f"{PAPER}, Theorem 5: head and attention together, for the regularisation path",
        "conclusion": "the head converges to the max-margin head, the attention to the (relaxed) Att-SVM",
    }


def _joint(fit: Fit) -> Iterator[tuple[str, bool | None]]:
    assert fit.head_svm is not None
    classifies = _separable(fit.head_svm.status)
    if classifies and not fit.interrupted and _size_of_swaps(fit) <= SWAPS_UP_TO:
        for statement, one in zip(_JOINT, joint_conditions(fit.train, fit.run.selected).hypotheses, strict=True):
            found = "" if one.number is None else f": {number(float(one.number))}"
            yield f"{statement}{found}", bool(one.holds)
    else:
        # without a head there is no margin; with one, the swaps take longer than a page may
        relaxed = fit.plain if fit.relaxed is None else fit.relaxed
        decided = (classifies, _separable(relaxed.status), *((None if classifies else False,) * 2))
        yield from zip(_JOINT, decided, strict=True)
    yield f"the weights are on the regularisation path (here: {fit.settings['optimizer']})", False


_JOINT = (
    "a head classifies every selected token (margin of the labels, above 0)",
    "the selected tokens are separable from the others, with margin 0 where the label has slack",
    "a small share of attention on another token reduces the margin of the labels (gap, above 0)",
    "so does swapping the token of a sequence (margin after a swap over the margin, below 1)",
)
"""What the hypotheses of :func:`attsvm.joint_conditions` say, in their order."""


def _size_of_swaps(fit: Fit) -> int:
    """The numbers in the rows of all the head's SVMs with another token in place of one without slack."""
    assert fit.slack is not None
    allowed, active = fit.train.canonical.allowed, fit.train.canonical.active
    others = allowed.sum(axis=-1)[active & ~fit.slack.reshape(active.shape)] - 1
    return int(others.sum() * active.sum() * fit.train.dim)


def _separable(status: object) -> bool | None:
    return {"optimal": True, "infeasible": False}.get(str(status))
