"""The projection on the unit ball of a norm, from its proximal map."""

import numpy as np
import scipy

from attsvm.norms.base import Norm


def project_on_ball(norm: Norm, x: np.ndarray, radius: float = 1.0) -> np.ndarray:
    """The nearest point with N(w) ≤ r: the proximal point of the step at which its norm is r.

    ``norm``: with ``prox`` and ``dual``. ``x``: one matrix or one vector. ``radius``: r > 0.
    """

    def size(w: np.ndarray) -> float:
        return float(norm.values(w, x.ndim)) / radius

    if size(x) <= 1:
        return x
    # N(prox(x, τ)) falls from N(x) at 0 to 0 at N*(x)
    longest = float(norm.dual.values(x, x.ndim))

    def excess(step: float) -> float:
        return size(norm.prox(x, step) if step > 0 else x) - 1

    step = scipy.optimize.brentq(excess, 0.0, longest, xtol=1e-300)
    nearest = norm.prox(x, step)
    return np.asarray(nearest / max(size(nearest), 1.0))
