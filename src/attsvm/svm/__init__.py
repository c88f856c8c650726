"""The Att-SVM of a selection: a certified direction from a problem and a selection.

There are three independent parts, which ``solve.py`` combines:

- ``constraints/``: the rows of A(W) ≥ b, and products with them;
- ``methods/``: one folder per family of norms, whose solvers return candidates for the least norm under such rows;
- ``certificate.py``: the bounds that a candidate of any solver proves.
"""

from attsvm.svm.certificate import Certificate
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm
from attsvm.svm.variants.finite_part import combined_prediction, finite_part
from attsvm.svm.variants.prediction_head import solve_head

__all__ = ["Certificate", "Solution", "combined_prediction", "finite_part", "solve_head", "solve_svm"]


def __dir__() -> list[str]:
    return sorted(__all__)
