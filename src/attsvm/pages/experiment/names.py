"""The names of the optimisers on the page."""


def name_of(optimizer: str) -> str:
    """The name of an optimiser on the page."""
    if optimizer.startswith("mirror-"):
        return f"{short_name_of(optimizer)} mirror descent"
    return {"sgd": "gradient descent"}.get(optimizer, short_name_of(optimizer))


def short_name_of(optimizer: str) -> str:
    """Its name in an order, such as ℓ1.1 > ℓ2.

    Examples
    --------
    >>> from attsvm.pages.experiment.names import name_of, short_name_of
    >>> name_of("mirror-1.1"), short_name_of("mirror-1.1"), name_of("sgd")
    ('ℓ1.1 mirror descent', 'ℓ1.1', 'gradient descent')
    """
    if optimizer.startswith("mirror-"):
        return f"ℓ{optimizer.removeprefix('mirror-')}"
    return {"sgd": "GD", "adam": "Adam"}.get(optimizer, optimizer)
