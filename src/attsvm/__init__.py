"""attsvm: what training does to softmax attention.

The Att-SVM that an attention layer converges to, solved with a certificate, trained towards to the limit, and measured.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("attsvm")

from attsvm import datasets
from attsvm.errors import ProblemError
from attsvm.geometry import bregman_divergence, correlation, direction_error, in_cone, margin_ratio
from attsvm.margins import margin
from attsvm.problem import Problem
from attsvm.regularization import Path, regularization_path
from attsvm.selection import optimal_tokens, scores
from attsvm.svm import Solution, combined_prediction, finite_part, solve_head, solve_svm
from attsvm.theory import (
    Classification,
    Feasibility,
    GlobalConditions,
    Prediction,
    Rate,
    classify,
    convergence_rate,
    feasibility,
    global_convergence_conditions,
    observed_rates,
    predict_direction,
)
from attsvm.training import Loss, Run, heads, optimizers, train

if TYPE_CHECKING:
    from attsvm.estimator import AttentionClassifier

__all__ = [
    "AttentionClassifier",
    "Classification",
    "Feasibility",
    "GlobalConditions",
    "Loss",
    "Path",
    "Prediction",
    "Problem",
    "ProblemError",
    "Rate",
    "Run",
    "Solution",
    "bregman_divergence",
    "classify",
    "combined_prediction",
    "convergence_rate",
    "correlation",
    "datasets",
    "direction_error",
    "feasibility",
    "finite_part",
    "global_convergence_conditions",
    "heads",
    "in_cone",
    "margin",
    "margin_ratio",
    "observed_rates",
    "optimal_tokens",
    "optimizers",
    "predict_direction",
    "regularization_path",
    "scores",
    "solve_head",
    "solve_svm",
    "train",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is imported by those who use the estimator
    if name == "AttentionClassifier":
        from attsvm.estimator import AttentionClassifier

        return AttentionClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
