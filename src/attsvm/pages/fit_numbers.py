"""``result.json``: everything that a fit measured, as documented in docs/guide/results.md."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.measures import in_cone, margin
from attsvm.pages.class_report import class_report
from attsvm.pages.schemas.fit import (
    ComparisonFields,
    FitDataFields,
    FitResult,
    SelectionFields,
    SolutionFields,
    TrainedSelectionFields,
)
from attsvm.pages.words import SOFT_BELOW, mean_interval, saturation_numbers, share_interval
from attsvm.selection import is_locally_optimal
from attsvm.svm import Solution
from attsvm.theory import Hypothesis, local_convergence_conditions

if TYPE_CHECKING:
    from attsvm._fit import ClassifierComparison, Fit

PAPER = "Tarzanagh, Li, Zhang and Oymak (2023)"
COMBINED_PAPER = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), local convergence of gradient descent"

CONE_UP_TO = 200_000
"""The cone is computed for at most this many logits, because the bounds are arrays of 24 times this size."""


def fit_numbers(fit: "Fit", *, command: str, threads: int | None, interrupted: bool) -> dict[str, Any]:
    """The result of a fit, and of its comparison with other classifiers, as JSON-able numbers.

    ``command``: the command that was run. ``threads``: the limit on threads, if there is one. ``interrupted``: whether
    the command was stopped, even if the fit is complete.
    """
    part, run, comparison, missing = fit.train, fit.run, fit.comparison, missing_error(fit)
    att_svm = None if fit.chosen is None else _att_svm(fit, fit.chosen)
    kept = part.canonical.active.reshape(part.query_shape)
    largest = fit.on_train.largest
    data = FitDataFields.fill(
        fit,
        queries=part.query_shape[-1] if part.has_query_axis else None,
        test=len(fit.test_rows),
        train_outputs=len(fit.on_train.correct),
        test_outputs=0 if fit.on_test is None else len(fit.on_test.correct),
    )
    return FitResult.fill(
        fit,
        command=command,
        threads=threads,
        interrupted=interrupted or fit.interrupted or (comparison is not None and comparison.interrupted),
        data=data,
        training={
            **fit.settings,
            "steps_done": run.step,
            "loss": run.loss,
            "norm": fit.history["norm"][-1],
            "precise_until": run.precise_until,
            "seconds": fit.seconds["training"],
        },
        accuracy=_accuracy(fit),
        report={"test": None} | {part: class_report(report) for part, report in fit.reports.items()},
        saturation={**saturation_numbers(largest), "lowest_largest_probability": largest.min()},
        selection=SelectionFields.fill(
            run,
            counts=np.bincount(run.selected[kept], minlength=part.num_tokens),
            share_optimal=(fit.optimal_tokens == run.selected)[kept].mean(),
            settled_at_step=_settled(fit),
            right=_right(fit),
        ),
        comparison=comparison and ComparisonFields.fill(comparison, classifiers=_classifiers(comparison)),
        optimal_tokens=None if fit.optimal is None else _solution(fit.optimal),
        att_svm=att_svm,
        relevant_tokens=None if fit.relevant_svm is None else _solution(fit.relevant_svm),
        theory=None if att_svm is None or missing else _theory(fit, att_svm),
        direction_error=None if missing else _errors(fit),
        direction_error_missing=missing,
        seconds=fit.seconds["everything"] + (0 if comparison is None else comparison.seconds),
    )


def _accuracy(fit: "Fit") -> dict[str, Any]:
    parts = {"train": (fit.train, fit.on_train), "test": (fit.test, fit.on_test)}
    found: dict[str, Any] = {"baseline": "logistic regression on the mean token"}
    for name, (part, on) in parts.items():
        values = {name: on.accuracy, f"baseline_{name}": fit.baseline[name]} if part and on else {}
        for field in (name, f"baseline_{name}"):
            found[field], found[f"{field}_interval"] = values.get(field), None
            if part and values:
                # the queries of a sequence are not independent, so the sequences count
                found[f"{field}_interval"] = share_interval(values[field], part.num_sequences)
    return found


def _right(fit: "Fit") -> dict[str, Any] | None:
    if fit.right is None:
        return None
    found: dict[str, Any] = {}
    for name, right in fit.right.items():
        found[name] = right.mean()
        found[f"{name}_interval"] = share_interval(right.mean(), len(right))
    return found


def _classifiers(comparison: "ClassifierComparison") -> list[dict[str, Any]]:
    return [
        {
            "classifier": name,
            "accuracies": accuracy,
            "mean_accuracy": accuracy.mean(),
            "mean_accuracy_interval": mean_interval(accuracy),
            "right_shares": right,
            "mean_right": None if right is None else right.mean(),
            "mean_right_interval": None if right is None else mean_interval(right),
        }
        for name, (accuracy, right) in comparison.scores.items()
    ]


def _att_svm(fit: "Fit", chosen: Solution) -> dict[str, Any]:
    # without a value, no query has a token to drop
    trained_margin = margin(fit.train, fit.run.weights, fit.run.selected) if chosen.value > 0 else None
    infeasible = chosen.status == "infeasible"
    return _solution(
        chosen,
        TrainedSelectionFields,
        trained_margin=trained_margin,
        margin_ratio=None if trained_margin is None else trained_margin * chosen.value,
        locally_optimal=None if infeasible else bool(is_locally_optimal(fit.train, fit.run.selected, chosen.support)),
    )


def weights_symbol(fit: "Fit") -> str:
    """Return "W" or "p"."""
    return "W" if fit.train.has_queries else "p"


def missing_error(fit: "Fit") -> str | None:
    """Why there is no direction error; None if there is one."""
    if fit.chosen is None:
        return "no theorem covers attention and a prediction head that are trained together in this way"
    if fit.soft:
        return (
            f"the attention is not saturated (median largest probability {fit.median_largest:.3g}, below {SOFT_BELOW})"
        )
    if "direction_error" not in fit.history:
        if fit.train.copies.distinct.sum(axis=-1).max() == 1:
            return "no query has two tokens with different keys, so nothing is selected"
        if fit.chosen.value == 0:
            return "the norm of the Att-SVM of the trained selection underflows; scale the tokens to about 1"
        return f"the Att-SVM of the trained selection is {fit.chosen.status}"
    return None


def _solution(solution: Solution, form: type[SolutionFields] = SolutionFields, **given: Any) -> dict[str, Any]:
    return form.fill(
        solution,
        separable={"optimal": True, "infeasible": False}.get(str(solution.status)),
        farkas_bound=solution.bound if solution.status == "infeasible" else None,
        support_tokens=int(solution.support.sum()),
        support=np.argwhere(solution.support),
        **given,
    )


def _errors(fit: "Fit") -> dict[str, Any]:
    steps, errors = fit.history["steps"], fit.history["direction_error"]
    return {"final": errors[-1], "steps": steps[steps > 0], "errors": errors[steps > 0]}


def _settled(fit: "Fit") -> int | None:
    """The first recorded step after which the selection does not change."""
    moving = np.flatnonzero(fit.history["changed"])
    first = 0 if not len(moving) else moving[-1] + 1
    return int(fit.history["steps"][first])


def _theory(fit: "Fit", att_svm: dict[str, Any]) -> dict[str, Any]:
    """The field ``theory`` of ``result.json`` for a fixed head, with the field ``att_svm`` of its trained selection.

    A hypothesis is a sentence and whether it holds: true, false, or None if it was not decided or not checked.
    """
    theorem = COMBINED_PAPER if fit.train.has_queries else f"{PAPER}, Theorem 3"
    return {
        "theorem": f"{theorem}: gradient descent on the attention with a fixed head",
        "conclusion": "the norm of the weights grows without bound and their direction converges to the Att-SVM of the "
        "selected tokens",
        "hypotheses": _hypotheses(fit, att_svm),
    }


def _hypotheses(fit: "Fit", att_svm: dict[str, Any]) -> list[Hypothesis]:
    separable = att_svm["separable"]
    locally = att_svm["locally_optimal"] if separable else separable
    return [
        Hypothesis("decreasing_loss", "the loss decreases strictly and is smooth (logistic loss)", True),
        Hypothesis("separable", "the selected tokens are separable from the others", separable),
        Hypothesis(
            "locally_optimal", "the selection is locally optimal: every support token has a lower score", locally
        ),
        Hypothesis(
            "in_cone",
            "the weights reach a cone around the Att-SVM direction, at a norm from which training stays in it",
            locally and _in_cone(fit),
        ),
        Hypothesis(
            "constant_rate",
            "the steps are those of gradient descent with a constant learning rate of at most 1/L "
            f"(here: {fit.settings['optimizer']}, {fit.settings['step_size']})",
            False,  # every run of this command normalises its gradients: no theorem covers that with growing steps
        ),
    ]


def _in_cone(fit: "Fit") -> bool | None:
    """Whether the final weights are in a cone of proved constants; outside of it nothing is proved."""
    if fit.chosen is None or fit.train.canonical.allowed.size > CONE_UP_TO:
        return None
    cone = local_convergence_conditions(fit.train, fit.run.selected)
    if not cone.holds:
        return None
    inside = in_cone(fit.run.weights, fit.chosen.direction, float(cone.opening), float(cone.radius))
    return True if inside else None
