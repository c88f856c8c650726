"""How errors decrease: like a power of the number of steps, or of its logarithm."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from scipy.stats import theilslopes

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.results import Batched, per_trial, plain, shared

FLOOR = 1e-14
"""Errors below this are rounding errors."""
FEWEST = 4
"""Records that a slope needs."""
CLEAR = 10.0
"""A difference of AIC from which the data speak clearly for one of two laws (Burnham and Anderson)."""


class Law(StrEnum):
    """How an error depends on the number of steps k.

    ============ ======================
    law          error
    ============ ======================
    ``power``    C k^slope
    ``polylog``  C (log k)^slope
    ============ ======================

    See Also
    --------
    attsvm.theory.convergence_rate, attsvm.theory.compare_laws
    """

    POWER = "power"
    POLYLOG = "polylog"


SCALES: dict[Law, tuple[int, Callable[[np.ndarray], np.ndarray], str]] = {
    Law.POWER: (1, np.log, "steps"),
    Law.POLYLOG: (2, lambda steps: np.log(np.log(steps)), "log(steps)"),
}
"""Of each law: its first step, the abscissa on which log(error) is a line, and what is raised to the slope."""


@dataclass(frozen=True, eq=False, repr=False)
class Rate(Batched):
    """error ~ steps^slope, or log(steps)^slope.

    Attributes
    ----------
    slope : float or ndarray, shape (*batch_shape,)
        Median of the slopes between all pairs of records (Theil and Sen), which is robust to outliers. With fewer than
        4 records it is 0, with an interval from −∞ to ∞.
    low, high : float or ndarray, shape (*batch_shape,)
        The confidence interval.
    points : int or int ndarray, shape (*batch_shape,)
        Number of records used.
    aic : float or ndarray, shape (*batch_shape,)
        Akaike's information criterion of the law, fitted by least squares to the logarithms of the errors: lower is
        better. It is 0 with fewer than 4 records.
    law : Law

    See Also
    --------
    attsvm.theory.convergence_rate : Makes one.
    attsvm.theory.compare_laws

    Examples
    --------
    >>> import attsvm
    >>> rate = attsvm.theory.convergence_rate([1, 10, 100, 1000, 10000], [1.0, 0.1, 0.01, 1e-3, 1e-4])
    >>> round(rate.slope, 6), rate.points, rate.law
    (-1.0, 5, <Law.POWER: 'power'>)
    """

    kind: ClassVar[str] = "rate"
    schema: ClassVar[int] = 2

    slope: float | np.ndarray = per_trial()
    low: float | np.ndarray = per_trial()
    high: float | np.ndarray = per_trial()
    points: int | np.ndarray = per_trial()
    aic: float | np.ndarray = per_trial()
    law: Law = shared(Law.POWER, read=Law)

    def _summary(self) -> str:
        base = SCALES[self.law][2]
        return f"{base}^{self.slope:z.3g}; interval {self.low:z.3g} to {self.high:z.3g}; {self.points} points"

    def _batch_summary(self) -> str:
        return f"{self.law}, slopes {np.min(self.slope):z.3g} to {np.max(self.slope):z.3g}"


@dataclass(frozen=True, eq=False, repr=False)
class Rates(Batched):
    """The laws of :class:`attsvm.theory.Law`, fitted to the same records.

    Attributes
    ----------
    power, polylog : Rate

    See Also
    --------
    attsvm.theory.compare_laws : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> rates = attsvm.theory.compare_laws([1, 10, 100, 1000, 10000], [1.0, 0.1, 0.01, 1e-3, 1e-4])
    >>> bool(rates.power.aic < rates.polylog.aic)
    True
    """

    kind: ClassVar[str] = "rates"

    power: Rate = per_trial()
    polylog: Rate = per_trial()

    @property
    def evidence(self) -> float | np.ndarray:
        """AIC of the poly-log law minus AIC of the power law: positive where the power law fits better."""
        return plain(np.asarray(self.polylog.aic) - np.asarray(self.power.aic))  # type: ignore[no-any-return]

    @property
    def preferred(self) -> str | np.ndarray:
        """``power`` or ``polylog`` where AIC differs by more than 10 in its favour, else ``neither``."""
        evidence = np.asarray(self.evidence)
        named = np.where(evidence > CLEAR, Law.POWER.value, np.where(evidence < -CLEAR, Law.POLYLOG.value, "neither"))
        return plain(named)  # type: ignore[no-any-return]

    def _summary(self) -> str:
        return f"{self.preferred} preferred; {self.power._summary()}; {self.polylog._summary()}"

    def _batch_summary(self) -> str:
        preferred = np.asarray(self.preferred)
        return ", ".join(f"{np.sum(preferred == name)} {name}" for name in (*Law, "neither"))


def convergence_rate(steps: Any, errors: Any, since: Any = 1, confidence: float = 0.95, law: str = Law.POWER) -> Rate:
    """The power of the number of steps, or of its logarithm, with which errors decrease.

    Parameters
    ----------
    steps : int array, shape (R,)
        Preferably evenly spaced on a logarithmic scale, like the records of a run.
    errors : array, shape (R, *batch)
        Errors below 1e-14 are rounding errors and are left out.
    since : float or array, shape (*batch,)
        Records of earlier steps are left out.
    confidence : float
        The confidence of the interval, between 0 and 1.
    law : {"power", "polylog"}
        error = C k^slope, or error = C (log k)^slope.

    Returns
    -------
    Rate

    Raises
    ------
    ProblemError
        If shapes do not fit, the confidence is out of range or the law is not known.

    See Also
    --------
    attsvm.theory.compare_laws
    attsvm.theory.observed_rates : The rate of a run.
    attsvm.theory.mirror_descent_bound : The rate that is proved.

    References
    ----------
    Theil (1950) and Sen (1968), whose estimate of the slope this is.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> steps = np.array([1, 10, 100, 1000])
    >>> attsvm.theory.convergence_rate(steps, 1 / steps)
    Rate(steps^-1; interval -1 to -1; 4 points)
    """
    if law not in list(Law):
        raise ProblemError(f"law: expected {', '.join(Law)}, got {law!r}")
    steps, errors = np.asarray(steps), np.asarray(errors, dtype=np.float64)
    if steps.ndim != 1 or errors.shape[:1] != steps.shape or 0 in errors.shape:
        raise ProblemError(f"steps, errors: expected shapes (R,) and (R, *batch), got {steps.shape}, {errors.shape}")
    if not 0 < confidence < 1:
        raise ProblemError(f"confidence: expected a number between 0 and 1, got {confidence!r}")
    first, abscissa, _ = SCALES[Law(law)]
    batch = errors.shape[1:]
    begin = np.broadcast_to(np.maximum(since, first), batch).reshape(-1)
    columns = errors.reshape(len(steps), -1)
    used = (steps[:, None] >= begin) & np.isfinite(columns) & (columns > FLOOR)
    found = [_fitted(steps, column, kept, abscissa, confidence) for column, kept in zip(columns.T, used.T, strict=True)]
    slope, low, high, points, aic = (plain(np.array(column).reshape(batch)) for column in zip(*found, strict=True))
    return Rate(slope, low, high, points, aic, Law(law))


def compare_laws(steps: Any, errors: Any, since: Any = 1, confidence: float = 0.95) -> Rates:
    """Fit the power law and the poly-log law to the same errors, and compare them by AIC.

    The records of one run are not independent, so a difference of AIC overstates the evidence; only differences above
    10 count (:attr:`Rates.preferred`).

    Parameters
    ----------
    steps, errors, since, confidence
        As for :func:`attsvm.theory.convergence_rate`. Step 1, whose logarithm is zero, is left out.

    Returns
    -------
    Rates

    See Also
    --------
    attsvm.theory.convergence_rate, attsvm.theory.observed_rates

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.theory import compare_laws
    >>> steps = np.unique(np.geomspace(10, 1e6, 40).astype(int))
    >>> compare_laws(steps, 1 / np.log(steps) ** 2).preferred
    'polylog'
    """
    # AIC compares fits to the same records only
    first = np.maximum(since, max(first for first, _, _ in SCALES.values()))
    return Rates(**{str(law): convergence_rate(steps, errors, first, confidence, law) for law in Law})


def _fitted(
    steps: Int[np.ndarray, " R"],
    errors: Float[np.ndarray, " R"],
    used: Bool[np.ndarray, " R"],
    abscissa: Callable[[np.ndarray], np.ndarray],
    confidence: float,
) -> tuple[float, float, float, int, float]:
    """Slope, interval, number of records and AIC of one column."""
    number = int(used.sum())
    if number < FEWEST:
        return 0.0, -np.inf, np.inf, number, 0.0
    x, y = abscissa(steps[used]), np.log(errors[used])
    # log(error) is a line over the abscissa; its median slope is robust, and least squares give the AIC
    found = theilslopes(y, x, confidence)
    line = np.polynomial.Polynomial.fit(x, y, 1)
    # residuals of an exact law are rounding errors, whose size counts as the smallest variance
    rounding = np.finfo(np.float64).eps * max(1.0, np.max(np.abs(y)))
    variance = max(np.mean((y - line(x)) ** 2), rounding**2)
    # two coefficients and the variance
    aic = number * np.log(variance) + 2 * 3
    return float(found.slope), float(found.low_slope), float(found.high_slope), number, float(aic)
