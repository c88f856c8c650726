"""Tolerances at which a training ends before its last step."""

from dataclasses import dataclass

from attsvm._utils.checks import check_number


@dataclass(frozen=True)
class Stopping:
    """Tolerances at which a trial stops, with status ``converged``, before it has made all steps.

    Parameters
    ----------
    margin_tol : float, optional
        Stop when the margin grew by less than this fraction while the norm of the weights doubled and the selection
        stayed the same: then the margin ratio no longer grows. It is tested when the number of steps is a power of √2.
        Margins and weights are measured in the norm of the optimiser; for Euclidean steps on factors in the nuclear
        norm.
    gradient_tol : float, optional
        Stop when the Frobenius norm of the gradient of all trained parameters is at most this. Not for mini-batches.

    Raises
    ------
    ProblemError
        If a tolerance is not a number >= 0.

    See Also
    --------
    attsvm.train

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, steps=1_000_000, stop=attsvm.Stopping(margin_tol=1e-2))
    >>> run.status.value, run.steps < 1_000_000
    ('converged', True)
    """

    margin_tol: float | None = None
    gradient_tol: float | None = None

    def __post_init__(self) -> None:
        for name in ("margin_tol", "gradient_tol"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), "a number >= 0", lambda x: x >= 0)
