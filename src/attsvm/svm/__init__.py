"""The Att-SVM of a selection: problem and selection in, certified direction out.

Three things that know nothing of each other, and ``solve.py``, which puts them together:

- ``constraints.py``: the rows of A(W) ≥ b, and products with them;
- one file a geometry (``frobenius.py``, ...): a solver's candidate for the least norm under such rows;
- ``certificate.py``: what a candidate proves, whichever solver made it.
"""

from attsvm.svm.certificate import Certificate
from attsvm.svm.solution import Solution
from attsvm.svm.solve import solve_svm
from attsvm.svm.variants.finite_part import combined_prediction, finite_part
from attsvm.svm.variants.head import solve_head

__all__ = ["Certificate", "Solution", "combined_prediction", "finite_part", "solve_head", "solve_svm"]
