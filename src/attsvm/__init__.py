"""attsvm: what training does to softmax attention.

The Att-SVM that an attention layer converges to, solved with a certificate, trained towards to the limit, and measured.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("attsvm")

from attsvm import datasets
from attsvm.errors import ProblemError
from attsvm.geometry import bregman_divergence, correlation, direction_error, margin_ratio
from attsvm.margins import margin
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens, scores
from attsvm.svm import Solution, combined_prediction, finite_part, solve_head, solve_svm
from attsvm.theory import Classification, classify
from attsvm.training import Loss, Path, Run, heads, optimizers, regularization_path, train

if TYPE_CHECKING:
    from attsvm.estimator import AttentionClassifier

__all__ = [
    "AttentionClassifier",
    "Classification",
    "Loss",
    "Path",
    "Problem",
    "ProblemError",
    "Run",
    "Solution",
    "bregman_divergence",
    "classify",
    "combined_prediction",
    "correlation",
    "datasets",
    "direction_error",
    "finite_part",
    "heads",
    "margin",
    "margin_ratio",
    "optimal_tokens",
    "optimizers",
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
