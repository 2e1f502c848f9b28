"""Means and intervals that the other analyses share. Everything is on the log scale until it is shown."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

LEVEL = 0.95
"""Every interval of the product covers the truth this often."""


@dataclass(frozen=True)
class LogMean:
    """Mean of log throughput of one configuration.

    Attributes:
        mean: mean of the natural logs; log of examples per second.
        variance: squared standard error of that mean; NaN when it is unknown.
        df: degrees of freedom of the variance.
        runs: how many runs are behind it.
    """

    mean: float
    variance: float
    df: float
    runs: int


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% interval. `low` and `high` are NaN where the data cannot give them."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) or math.isfinite(self.high)

    def excludes(self, value: float) -> bool:
        """Whether the whole interval lies on one side of `value`; False for an unknown interval."""
        return self.low > value or self.high < value


def t_quantile(df: float, level: float = LEVEL) -> float:
    """Two-sided quantile of Student's t, such as 2.776 for 4 degrees of freedom. NaN for df <= 0 or NaN."""
    return float(stdtrit(df, 0.5 + level / 2)) if df > 0 else math.nan


def between_runs(log_values: np.ndarray) -> LogMean:
    """Mean of repeats and its variance by their own spread.

    Args:
        log_values: [runs] natural logs of throughput. With one run the variance is NaN: one run has no spread.
    """
    values = np.asarray(log_values, dtype=float)
    runs = len(values)
    if runs == 0:
        return LogMean(math.nan, math.nan, 0.0, 0)
    variance = float(values.var(ddof=1)) / runs if runs > 1 else math.nan
    return LogMean(float(values.mean()), variance, float(runs - 1), runs)


def difference(first: LogMean, second: LogMean, level: float = LEVEL) -> tuple[Interval, float]:
    """Interval of `first.mean - second.mean` by Welch's unequal-variances t.

    Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34 (1947); degrees of freedom by F. E. Satterthwaite, Biometrics Bulletin 2 (1946).

    Returns:
        The interval on the log scale and its degrees of freedom. Without a variance on both sides, or with no spread
        at all (which no clock gives, so nothing was learned about the noise), the interval is NaN.
    """
    value = first.mean - second.mean
    total = first.variance + second.variance
    if not total > 0:
        return Interval(value, math.nan, math.nan), 0.0
    parts = ((first.variance, first.df), (second.variance, second.df))
    df = total**2 / sum(variance**2 / df for variance, df in parts if variance > 0)
    half = t_quantile(df, level) * math.sqrt(total)
    return Interval(value, value - half, value + half), df


def corrected(comparisons: int) -> float:
    """The level of each of several intervals at which all of them together cover as often as one alone should.

    Bonferroni's: the chance to miss is shared out equally. Source: O. J. Dunn, "Multiple comparisons among means",
    J. American Statistical Association 56 (1961).
    """
    return 1 - (1 - LEVEL) / max(comparisons, 1)


def exponential(interval: Interval) -> Interval:
    """The interval of exp(value): a difference of logs becomes a ratio."""
    return Interval(math.exp(interval.value), math.exp(interval.low), math.exp(interval.high))


def quotient(top: float, top_variance: float, bottom: float, bottom_variance: float, df: float) -> Interval:
    """Interval of `top / bottom`, two independent estimates with normal errors, by Fieller's theorem.

    Source: E. C. Fieller, "Some problems in interval estimation", J. Royal Statistical Society B 16 (1954).

    Returns:
        NaN limits when the bottom may be zero at this level: then no finite interval covers.
    """
    value = top / bottom if bottom else math.nan
    t_squared = t_quantile(df) ** 2
    g = t_squared * bottom_variance / bottom**2 if bottom else math.nan
    if not g < 1 or not top_variance >= 0:
        return Interval(value, math.nan, math.nan)
    spread = math.sqrt(t_squared * (top_variance * (1 - g) + value**2 * bottom_variance)) / abs(bottom)
    return Interval(value, (value - spread) / (1 - g), (value + spread) / (1 - g))
