"""Names of the parameters of single attention heads, for rules that see the heads apart."""

from collections.abc import Iterable


def of_head(name: str, head: int) -> str:
    """The name of a parameter of one head."""
    return f"{name}[{head}]"


def shared_name(name: str) -> str:
    """The name of the parameter of all heads."""
    return name.partition("[")[0]


def by_head(names: Iterable[str]) -> list[list[str]]:
    """The names of each head; all of them where the heads are not apart.

    Examples
    --------
    >>> from attsvm.optimizers.head_names import by_head
    >>> by_head(["K[0]", "K[1]", "Q[0]", "Q[1]"])
    [['K[0]', 'Q[0]'], ['K[1]', 'Q[1]']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[2], []).append(name)
    return list(groups.values())
