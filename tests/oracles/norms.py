"""Norms by NumPy alone: entrywise ℓp for every p, of any size, and the nuclear and spectral norm."""

import numpy as np


def conjugate(p):
    """The q with 1/p + 1/q = 1."""
    return np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)


def lp(x, p):
    """(Σ |x|^p)^(1/p) over all entries; powers of what is relative to the largest entry do not overflow."""
    largest = np.abs(x).max(initial=0.0)
    if largest == 0 or np.isinf(p):
        return largest
    return largest * np.sum((np.abs(x) / largest) ** p) ** (1 / p)


def norm_and_dual(name, shape=None):
    """Both as functions of flattened weights; of the library's name or a p; a norm of matrices needs their shape."""
    if name not in ("nuclear", "spectral"):
        p = 2.0 if name == "frobenius" else float(str(name).removeprefix("l"))
        return (lambda w: lp(w, p)), (lambda w: lp(w, conjugate(p)))

    def singular_values(w):
        return np.linalg.svd(np.reshape(w, shape or np.shape(w)), compute_uv=False)

    both = (lambda w: singular_values(w).sum()), (lambda w: singular_values(w).max())
    return both if name == "nuclear" else both[::-1]
