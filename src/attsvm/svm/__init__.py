"""The Att-SVM of a selection: from a problem and a selection to a certified direction.

There are three independent parts, which ``solve.py`` combines:

- ``constraints/``: the rows of A(W) ≥ b, and products with them;
- ``methods/``: one folder per family of norms, whose solvers return candidates for the least norm under such rows;
- ``certificate.py``: the bounds that a candidate of any solver proves.
"""

from attsvm.svm.certificate import FARKAS_BOUND as FARKAS_BOUND
from attsvm.svm.certificate import Certificate
from attsvm.svm.certified_interval import HeadProblem as HeadProblem
from attsvm.svm.certified_interval import MarginInterval as MarginInterval
from attsvm.svm.certified_interval import margin_interval as margin_interval
from attsvm.svm.constraints.constraints import Constraints as Constraints
from attsvm.svm.constraints.dual_products import Grams as Grams
from attsvm.svm.constraints.dual_products import UnitRows as UnitRows
from attsvm.svm.methods.frobenius.dual_search import DualSearch as DualSearch
from attsvm.svm.methods.frobenius.pivoting import block_pivoting as block_pivoting
from attsvm.svm.primal_iteration import PrimalIteration as PrimalIteration
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm
from attsvm.svm.variants.finite_part import combined_prediction, finite_part
from attsvm.svm.variants.ordered import ordered_margin as ordered_margin
from attsvm.svm.variants.ordered import solve_ordered as solve_ordered
from attsvm.svm.variants.prediction_head import solve_head

__all__ = ["Certificate", "Solution", "combined_prediction", "finite_part", "solve_head", "solve_svm"]

# for the other packages of attsvm, beside the public names
__door__ = (
    "Constraints",
    "DualSearch",
    "FARKAS_BOUND",
    "Grams",
    "HeadProblem",
    "MarginInterval",
    "PrimalIteration",
    "UnitRows",
    "block_pivoting",
    "margin_interval",
    "ordered_margin",
    "solve_ordered",
)


def __dir__() -> list[str]:
    return sorted(__all__)
