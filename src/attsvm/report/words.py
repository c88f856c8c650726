"""Numbers and shares as text: the same spelling on every page and on the terminal."""

import math

Rows = list[tuple[str, str]]
"""Names and values of a table."""


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{share:.1%}"


def number(value: float | None) -> str:
    """A number with three or four digits; a probability just below 1 is written as its distance to 1.

    Examples
    --------
    >>> from attsvm.report.words import number
    >>> number(0.5), number(123456.0), number(1 - 1e-6), number(None)
    ('0.5', '1.23e+05', '1 − 1.0e-06', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if 0.999 < value < 1:
        return f"1 − {1 - value:.1e}"
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 9999.5 else f"{value:.2e}"


def short(value: float) -> str:
    """A number with two or three digits, for wide tables."""
    if value == 0:
        return "0"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"


def listed(names: list[str]) -> str:
    """Names with commas, and "and" before the last.

    Examples
    --------
    >>> from attsvm.report.words import listed
    >>> listed(["W"]), listed(["K", "Q", "v"])
    ('W', 'K, Q and v')
    """
    *others, last = names
    return f"{', '.join(others)}{' and ' * bool(others)}{last}"
