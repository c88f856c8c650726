"""attsvm: what training does to softmax attention.

The Att-SVM that an attention layer converges to, solved with a certificate, trained towards to the limit, and measured.
"""

from importlib.metadata import version

__version__ = version("attsvm")

from attsvm import datasets
from attsvm.errors import ProblemError
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens, scores

__all__ = ["Problem", "ProblemError", "datasets", "optimal_tokens", "scores"]
