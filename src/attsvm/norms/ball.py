"""The projection on the unit ball of a norm, from its proximal map."""

import numpy as np
from scipy.optimize import brentq

from attsvm.norms.base import Norm


def project_on_ball(norm: Norm, x: np.ndarray) -> np.ndarray:
    """The nearest point with N(w) ≤ 1: the proximal point of the step at which its norm is 1.

    Parameters
    ----------
    norm : Norm
        With ``prox`` and ``dual``.
    x : ndarray
        One matrix or one vector.
    """

    def size(w: np.ndarray) -> float:
        return float(norm.values(w, x.ndim))

    if size(x) <= 1:
        return x
    # N(prox(x, τ)) falls from N(x) at 0 to 0 at N*(x)
    longest = float(norm.dual.values(x, x.ndim))
    step = brentq(lambda step: size(norm.prox(x, step)) - 1 if step > 0 else size(x) - 1, 0.0, longest, xtol=1e-300)
    nearest = norm.prox(x, step)
    return np.asarray(nearest / max(size(nearest), 1.0))
