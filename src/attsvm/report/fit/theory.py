"""Which theorem speaks of a fit, and which of its hypotheses were found to hold."""

from typing import Any

from attsvm.apps.fit.result import Fit
from attsvm.selection import is_locally_optimal

PAPER = "Tarzanagh, Li, Zhang and Oymak (2023)"
COMBINED_PAPER = "Tarzanagh, Li, Thrampoulidis and Oymak (2023), local convergence of gradient descent"


def theory_numbers(fit: Fit) -> dict[str, Any]:
    """The field ``theory`` of ``result.json``.

    A hypothesis is a sentence and whether it holds: true, false, or None if it is undecided.
    """
    return _joint(fit) if fit.head_svm is not None else _fixed_head(fit)


def _fixed_head(fit: Fit) -> dict[str, Any]:
    separable = _separable(fit.plain.status)
    locally = bool(is_locally_optimal(fit.train, fit.run.selected, fit.plain.support)) if separable else None
    theorem = COMBINED_PAPER if fit.train.has_queries else f"{PAPER}, Theorem 3"
    return {
        "theorem": f"{theorem}: gradient descent on the attention with a fixed head",
        "conclusion": "the direction converges to the Att-SVM of the selected tokens",
        "hypotheses": [
            _hypothesis("the optimal tokens are separable from the others", _separable(fit.optimal.status)),
            _hypothesis("the selected tokens are separable from the others", separable),
            _hypothesis("the selection is locally optimal: no support token has a higher score", locally),
            _hypothesis("the attention is saturated", not fit.soft),
        ],
    }


def _joint(fit: Fit) -> dict[str, Any]:
    assert fit.head_svm is not None
    return {
        "theorem": f"{PAPER}, Theorem 5: head and attention together, for the regularisation path",
        "conclusion": "the head converges to the max-margin head, the attention to the (relaxed) Att-SVM",
        "hypotheses": [
            _hypothesis("the selected tokens are separable from the others", _separable(fit.plain.status)),
            _hypothesis("a head classifies every selected token", _separable(fit.head_svm.status)),
            _hypothesis("the attention is saturated", not fit.soft),
        ],
    }


def _separable(status: object) -> bool | None:
    return {"optimal": True, "infeasible": False}.get(str(status))


def _hypothesis(statement: str, holds: bool | None) -> dict[str, Any]:
    return {"statement": statement, "holds": holds}
