"""A method of :class:`attsvm.Problem`: another linear prediction head, for example one fitted to the labels."""

from typing import Any, TypeVar

import lazy_loader
import numpy as np

from attsvm.errors import ProblemError

mean_token = lazy_loader.load("attsvm.problem.mean_token", suppress_warning=True)

P = TypeVar("P")


def with_head(self: P, head: Any) -> P:
    """The problem with another linear prediction head, for example one fitted to the labels.

    Parameters
    ----------
    head : "mean", or array of shape (*batch, d) or (*batch, C, d)
        "mean" is logistic regression without intercept on the mean of the tokens that a query may attend to, of
        unit norm. Each problem of a batch gets its own.

    Returns
    -------
    Problem

    Raises
    ------
    ProblemError
        If the head does not fit, or "mean" is given for a problem without labels of both classes ±1 or with several
        attention heads.

    See Also
    --------
    attsvm.train : Needs a head.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> tokens = np.random.default_rng(0).standard_normal((6, 8, 10))
    >>> problem = attsvm.Problem(tokens, labels=[1, -1, 1, -1, 1, -1]).with_head("mean")
    >>> problem
    Problem(6 sequences × 8 tokens, d = 10; prompt; labels ±1; head)
    >>> attsvm.train(problem, steps=2000).selected.shape
    (6,)
    """
    problem: Any = self
    if isinstance(head, str):
        head = _fitted_head(problem, head)
    return type(self)(**{**problem.arrays(), "head": head})


def _fitted_head(problem: Any, name: str) -> np.ndarray:
    if name != "mean":
        raise ProblemError(f'head: expected "mean" or an array, got {name!r}')
    if problem.num_heads is not None or problem.num_classes is not None:
        got = "several attention heads" if problem.num_classes is None else f"{problem.num_classes} classes"
        raise ProblemError(f'head: expected an array for a problem with {got}, got "mean"')
    trials = list(np.ndindex(problem.batch_shape))  # one, (), without batch axes
    each = [mean_token.mean_token_head(problem[trial] if trial else problem, trial) for trial in trials]
    return np.reshape(each, (*problem.batch_shape, problem.dim))
