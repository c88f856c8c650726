"""The steps at which training loops record what pages show."""


def is_recorded(step: int) -> bool:
    """Whether a step is 0 or a power of two: 14 records in 5,000 steps, and 21 in a million.

    Examples
    --------
    >>> from attsvm._utils.recording import is_recorded
    >>> [step for step in range(10) if is_recorded(step)]
    [0, 1, 2, 4, 8]
    """
    return step.bit_count() <= 1
