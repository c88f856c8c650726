"""Numbers and shares as text: the same spelling on every page and on the terminal."""

import math

Rows = list[tuple[str, str]]
"""Names and values of a table."""


FEW_ROWS = 20
"""With fewer test rows than this a page states counts and no percentage."""


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{share:.1%}"


def rate(share: float, count: int, interval: tuple[float, float]) -> str:
    """A share of counted rows with its interval; of few rows the counts, because a percentage would say too much.

    Examples
    --------
    >>> from attsvm.pages.words import rate
    >>> rate(0.93, 1000, (0.9125, 0.9442)), rate(0.75, 12, (0.47, 0.91))
    ('93.0% (91.2-94.4%)', '9 of the 12')
    """
    return counts(share, count) if count < FEW_ROWS else with_interval(share, interval)


def counts(share: float, count: int) -> str:
    """How many of the counted rows the share is.

    Examples
    --------
    >>> from attsvm.pages.words import counts
    >>> counts(0.75, 12)
    '9 of the 12'
    """
    return f"{round(share * count)} of the {count}"


def with_interval(share: float, interval: tuple[float, float]) -> str:
    """A share and its interval, as percentages."""
    low, high = interval
    return f"{share:.1%} ({100 * low:.1f}-{high:.1%})"


def number(value: float | None) -> str:
    """A number with three or four digits; a probability just below 1 is written as its distance to 1.

    Examples
    --------
    >>> from attsvm.pages.words import number
    >>> number(0.5), number(123456.0), number(1 - 1e-6), number(None)
    ('0.5', '1.23e+05', '1 − 1.0e-06', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if 0.999 < value < 1:
        return f"1 − {1 - value:.1e}"
    return f"{value:.4g}" if value == 0 or 1e-3 <= abs(value) < 9999.5 else f"{value:.2e}"


def short(value: float) -> str:
    """A number with two or three digits, for wide tables.

    Examples
    --------
    >>> from attsvm.pages.words import short
    >>> short(0.1234), short(12.34), short(17312.0), short(123456.0), short(1e-4)
    ('0.12', '12.3', '17300', '1.23e+05', '1.0e-04')
    """
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 99950:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.2g}" if abs(value) < 1 else f"{value:.3g}"


def tick_text(value: float) -> str:
    """A number at a tick of an axis; large and small ones with a power of ten, as the script of the zoom writes them.

    Examples
    --------
    >>> from attsvm.pages.words import tick_text
    >>> tick_text(0.25), tick_text(4e14), tick_text(1e-13)
    ('0.25', '4·10¹⁴', '10⁻¹³')
    """
    mantissa, power, exponent = short(value).partition("e")
    if not power:
        return mantissa
    return f"{float(mantissa):g}·10{str(int(exponent)).translate(_RAISED)}".removeprefix("1·")


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def listed(names: list[str]) -> str:
    """Names with commas, and "and" before the last.

    Examples
    --------
    >>> from attsvm.pages.words import listed
    >>> listed(["W"]), listed(["K", "Q", "v"])
    ('W', 'K, Q and v')
    """
    *others, last = names
    return f"{', '.join(others)}{' and ' * bool(others)}{last}"
