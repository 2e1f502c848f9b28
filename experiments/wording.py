"""Numbers as people read them, on pages, in figures and in a terminal."""

import math
from collections.abc import Callable


def number(value: float | int | None, digits: int = 3) -> str:
    """A number with so many significant digits and thousands separated; a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 8)}f}"


def count(value: int, singular: str, plural: str = "") -> str:
    """`1 run`, `1,500 runs`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of 1 as percent; a dash where there is none."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.{digits}f}%"


def times(ratio: float) -> str:
    """A ratio as `1.39x`; a dash where there is none."""
    return f"{ratio:.2f}x" if math.isfinite(ratio) else "–"


def interval(low: float, high: float, shown: Callable[[float], str]) -> str:
    """`1.32x to 1.50x`, each end as `shown` writes it; a dash where an end is not known."""
    return f"{shown(low)} to {shown(high)}" if math.isfinite(low) and math.isfinite(high) else "–"


def duration(seconds: float | None) -> str:
    """A time as people say it: `0.42 s`, `8.3 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`; a dash where there is none."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.9995:
        return f"{seconds:.2g} s" if seconds >= 0.0005 else "0 s"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
