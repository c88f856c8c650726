"""The exception for invalid arguments."""


class ProblemError(ValueError):
    """An argument is not valid. The message says which one, what was expected and what was given.

    Examples
    --------
    >>> import attsvm
    >>> attsvm.solve_svm(attsvm.datasets.random_problem(3, 4, 5), [0, 1, 7])
    Traceback (most recent call last):
        ...
    attsvm.errors.ProblemError: selected: expected tokens 0..3, got 7 for query (2,)
    """
