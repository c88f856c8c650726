"""The Att-SVM of a selection: from a problem and a selection to a certified direction.

There are three independent parts, which ``solve.py`` combines:

- ``constraints/``: the rows of A(W) ≥ b, and products with them;
- ``methods/``: one folder per family of norms, whose solvers return candidates for the least norm under such rows;
- ``certificate.py``: the bounds that a candidate of any solver proves.

``tolerances.py`` has the tolerances that several solvers share, and ``certificate.py`` those that decide a status. A
tolerance of one method, such as ``STOP`` in ``methods/semidefinite/face.py``, is in the file of the method.
"""

from attsvm._utils.doors import open_door

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
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
