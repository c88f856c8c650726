"""Tolerances that several solvers share. Those that decide a status are in ``certificate.py``."""

import numpy as np

EPS = float(np.finfo(float).eps)

ROUNDED = 1e-12
"""Violations of unit rows below this, relative to the right sides, are rounding errors, which no method removes."""

DEPENDENT = 1e-13
"""What is left of a row below this, after a projection on other rows, is a rounding error; so are singular values and
pivots of matrices of rows, relative to the largest."""

FINEST = 1e-13
"""The smallest relative gap that methods other than those of the Frobenius norm try to reach."""

LEAST_RIDGE = 1e-10
"""The least regularisation of equations that may be singular at the solution, so that they keep enough digits."""

FAILED = 1e-10
"""With a larger relative gap, the next method is tried."""
