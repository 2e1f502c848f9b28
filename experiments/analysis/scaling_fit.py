"""Fits of a scaling law: least squares, profile intervals that keep to the bounds, and what may be predicted."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import least_squares
from scipy.special import fdtrc

from experiments.analysis.intervals import Interval, t_quantile
from experiments.analysis.scaling_laws import LAWS, Law, Scaling

FURTHEST = 2
"""Nothing is predicted beyond this many times the largest measured number of devices."""
LACK_OF_FIT = 0.01
"""A law whose lack of fit is this unlikely to be noise predicts nothing."""
_ZERO = 1e-12
"""A parameter no larger than this is at its lower limit: the search ends that far from it."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class CannotFitError(ValueError):
    """The points cannot determine the law; the message says what is missing."""


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes:
        law: which.
        gamma: throughput of one device, examples per second.
        parameters: name -> estimate with its 95% interval.
        at_bound: names of parameters whose estimate is one of the law's limits.
        error: residual standard deviation: of log throughput, or of throughput for absolute errors.
        df: runs minus parameters.
        runs: runs fitted.
        counts: distinct numbers of devices measured, ascending.
        lack_of_fit: probability of so bad a fit if the law were true, from the spread of repeats; NaN without any.
        region: [samples, 1 + parameters] joint values (gamma first) inside the 95% profile region; the interval of
            any figure made of them is its range over these.
    """

    law: Law
    gamma: Interval
    parameters: dict[str, Interval]
    at_bound: tuple[str, ...]
    error: float
    df: int
    runs: int
    counts: tuple[int, ...]
    lack_of_fit: float
    region: np.ndarray = field(repr=False, compare=False)

    def relative(self, n: np.ndarray) -> np.ndarray:
        """Throughput of n devices over that of one."""
        return self.law.relative(np.asarray(n, float), *(parameter.value for parameter in self.parameters.values()))

    def efficiency(self, n: np.ndarray, fewest: int = 1) -> np.ndarray:
        """Throughput of each of n devices over that of each of the fewest; 1 on the ideal line."""
        return self.relative(n) / np.asarray(n, float) / (self.relative(np.array(fewest)) / fewest)

    def throughput(self, n: float) -> Interval:
        """Throughput of n devices by the law, with the interval of the curve (not of a run)."""
        value = float(self.gamma.value * self.relative(np.array(n, float)))
        if not len(self.region):
            return Interval(value, math.nan, math.nan)
        curve = self.region[:, 0] * self.law.relative(n, *self.region[:, 1:].T)
        return Interval(value, float(curve.min()), float(curve.max()))

    def refusal(self, n: float) -> str:
        """Why nothing may be predicted at n devices; empty when it may.

        The rule: one more distinct number of devices than the law has parameters (3 for Amdahl and Gustafson, 4 for
        the Universal Scalability Law), at most twice the largest of them, and no lack of fit at 1%.
        """
        if len(self.counts) <= self.law.size:
            return (
                f"{len(self.counts)} numbers of devices were measured, {self.law.size + 1} are needed "
                f"to predict by {self.law.name}"
            )
        if n > FURTHEST * self.counts[-1]:
            return f"beyond {FURTHEST} times the {self.counts[-1]} devices measured"
        if self.lack_of_fit < LACK_OF_FIT:
            return f"{self.law.name} does not fit the measurements (p = {self.lack_of_fit:.2g})"
        return "" if len(self.region) else "the runs do not differ at all, so their spread is unknown"

    def predict(self, n: float) -> Interval:
        """Throughput of one new run on n devices, with its 95% prediction interval.

        The curve's interval widened by the runs' own spread, on the log scale.

        Raises:
            CannotFitError: `refusal` says why.
        """
        reason = self.refusal(n)
        if reason:
            raise CannotFitError(reason)
        curve = self.throughput(n)
        own = t_quantile(self.df) * self.error
        below = math.hypot(math.log(curve.value / curve.low), own)
        above = math.hypot(math.log(curve.high / curve.value), own)
        return Interval(curve.value, curve.value * math.exp(-below), curve.value * math.exp(above))

    def sentences(self, devices: str = "devices") -> list[str]:
        """What each parameter means, in words, such as "6% of a step does not get faster with more GPUs (2% to 9%)".

        The number of devices with the highest throughput follows from a law's parameters like a prediction, so it is
        said only where the fit may predict.
        """
        said = []
        for parameter in self.law.parameters:
            estimate = self.parameters[parameter.name]
            shown = [_percent(value) for value in (estimate.value, estimate.low, estimate.high)]
            text = parameter.words.format(value=shown[0], low=shown[1], high=shown[2], devices=devices)
            said.append(text if estimate.known else text.partition(" (")[0] + " (interval unknown)")
        peak = self.peak()
        if peak is not None and not self.refusal(self.counts[-1] + 1):
            said.append(f"throughput is highest at {peak.value:.1f} {devices} ({_ends(peak)}): beyond, more is slower")
        return said

    def peak(self) -> Interval | None:
        """Number of devices with the highest throughput, sqrt((1 - sigma) / kappa) (Gunther 2007, section 4.4).

        None for a law without a peak, and where it lies further than predictions go. A limit that lies further is
        infinity.
        """
        if "kappa" not in self.parameters:
            return None
        furthest = FURTHEST * self.counts[-1]
        value = float(_peak(self.parameters["sigma"].value, self.parameters["kappa"].value))
        if value > furthest:
            return None
        ends = _peak(self.region[:, 1], self.region[:, 2]) if len(self.region) else np.array([math.nan])
        low, high = float(ends.min()), float(ends.max())
        return Interval(max(value, 1.0), max(low, 1.0), high if high <= furthest else math.inf)


def _peak(sigma: np.ndarray | float, kappa: np.ndarray | float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.sqrt(np.divide(1 - np.asarray(sigma), kappa))


def _ends(peak: Interval) -> str:
    """The interval of a number of devices; a high end that is infinite lies further than predictions go."""
    if math.isnan(peak.low):
        return "interval unknown"
    return f"{peak.low:.1f} to {peak.high:.1f}" if math.isfinite(peak.high) else f"at least {peak.low:.1f}"


def _percent(share: float) -> str:
    percent = 100 * share
    if abs(percent) < 0.0005:  # nothing that anyone could measure, and no number to read
        return "0%"
    if abs(percent) < 0.095:
        return f"{percent:.1g}%"
    return f"{percent:.1f}%" if percent < 10 else f"{percent:.0f}%"


class _Squares:
    """Sum of squared residuals with gamma solved for (variable projection, G. H. Golub and V. Pereyra, 1973)."""

    def __init__(self, law: Law, n: np.ndarray, x: np.ndarray, relative_errors: bool):
        self.law, self.n, self.x, self.relative_errors = law, n, x, relative_errors
        self._log_x = np.log(x) if relative_errors else x

    def solve(self, *parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sum of squares, best gamma, its curvature), each shaped as the parameters.

        Gamma is on the log scale for relative errors; the sum grows by curvature * (gamma - best)^2.
        """
        shape = self.law.relative(self.n, *(np.asarray(value, float)[..., None] for value in parameters))
        if self.relative_errors:
            residuals = self._log_x - np.log(shape)
            best = residuals.mean(axis=-1)
            return ((residuals - best[..., None]) ** 2).sum(axis=-1), best, np.full(best.shape, float(len(self.n)))
        curvature = (shape**2).sum(axis=-1)
        best = (shape * self.x).sum(axis=-1) / curvature
        return ((self.x - best[..., None] * shape) ** 2).sum(axis=-1), best, curvature

    def residuals(self, parameters: np.ndarray) -> np.ndarray:
        """[runs] residuals at one set of parameters, with the best gamma."""
        shape = self.law.relative(self.n, *parameters)
        if self.relative_errors:
            residuals = self._log_x - np.log(shape)
            return residuals - residuals.mean()
        return self.x - shape * (shape @ self.x) / (shape @ shape)

    def __call__(self, *parameters: np.ndarray) -> np.ndarray:
        return self.solve(*parameters)[0]


def _minimum(function: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where a function of one variable is least, elementwise, by golden section; its own ends are candidates.

    The search is on the square root of the variable, because parameters near 0 need the finer steps.
    """
    a, b = np.sqrt(low), np.sqrt(high)
    for _ in range(60):
        width = _GOLDEN * (b - a)
        left, right = b - width, a + width
        smaller = function(left**2) <= function(right**2)
        a, b = np.where(smaller, a, left), np.where(smaller, right, b)
    candidates = np.stack([low, ((a + b) / 2) ** 2, high])
    return np.take_along_axis(candidates, np.argmin([function(each) for each in candidates], axis=0)[None], 0)[0]


def _edge(function: Callable[[np.ndarray], np.ndarray], inside: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Where function turns positive between a point inside (function <= 0) and an outer one, elementwise, by bisection.

    The outer point itself where the function is not positive there.
    """
    reaches = function(outer) <= 0
    near, far = inside.copy(), outer.copy()
    for _ in range(50):
        middle = (near + far) / 2
        within = function(middle) <= 0
        near, far = np.where(within, middle, near), np.where(within, far, middle)
    return np.where(reaches, outer, near)


def _one(function: Callable[[np.ndarray], np.ndarray], highest: float) -> float:
    """Where a function of one variable is least over [0, highest]: a coarse look, then golden section at the best."""
    grid = np.linspace(0, math.sqrt(highest), 201) ** 2
    best = int(np.argmin(function(grid)))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 200)]
    return float(_minimum(function, np.array([low]), np.array([high]))[0])


def _optimum(squares: _Squares) -> np.ndarray:
    """The least-squares estimate of a law's parameters, gamma aside.

    The inside of the bounds by a trust region from the best points of a coarse grid, and the edges one by one, as an
    estimate on a bound is common (no coherency, no contention) and must be found exactly.
    """
    highest = np.array([parameter.highest for parameter in squares.law.parameters])
    if len(highest) == 1:
        return np.array([_one(squares, highest[0])])
    zero = np.zeros(1)
    candidates = [
        np.array([_one(lambda sigma: squares(sigma, np.zeros_like(sigma)), highest[0]), 0.0]),
        np.array([0.0, _one(lambda kappa: squares(np.zeros_like(kappa), kappa), highest[1])]),
        np.array([highest[0], _one(lambda kappa: squares(zero + highest[0], kappa), highest[1])]),
    ]
    sigma, kappa = np.meshgrid(np.linspace(0.01, 0.99, 25), np.geomspace(1e-7, highest[1], 60), indexing="ij")
    coarse = squares(sigma.ravel(), kappa.ravel())
    start = int(np.argmin(coarse))
    found = least_squares(
        squares.residuals,
        [sigma.ravel()[start], kappa.ravel()[start]],
        bounds=(0, highest),
        x_scale="jac",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    candidates.append(found.x)
    return min(candidates, key=lambda values: float(squares(*values)))


def _region(squares: _Squares, estimate: np.ndarray, limit: float) -> np.ndarray:
    """Samples of {parameters: sum of squares <= limit}, gamma first.

    Its projection on any figure is that figure's profile-likelihood interval: D. M. Bates and D. G. Watts, "Nonlinear
    Regression Analysis and Its Applications" (1988), section 6.1. Bounds of the parameters are bounds of the region.
    """
    highest = np.array([parameter.highest for parameter in squares.law.parameters])
    rays = _rays(squares, estimate)
    # How far each ray goes before it leaves the box.
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.where(rays > 0, (highest - estimate) / rays, np.where(rays < 0, -estimate / rays, np.inf))
    furthest = ends.min(axis=1)

    def excess(length: np.ndarray) -> np.ndarray:
        points = np.clip(estimate + length[:, None] * rays, 0, highest)
        return squares(*points.T) - limit

    lengths = _edge(excess, np.zeros(len(rays)), furthest)
    fractions = np.linspace(0, 1, 17)
    points = np.clip(estimate + (lengths[:, None] * fractions)[..., None] * rays[:, None], 0, highest)
    points = points.reshape(-1, len(estimate))
    total, best, curvature = squares.solve(*points.T)
    spread = np.sqrt(np.clip(limit - total, 0, None) / curvature)
    gammas = [best - spread, best, best + spread]
    if squares.relative_errors:
        gammas = [np.exp(gamma) for gamma in gammas]
    return np.concatenate([np.column_stack([gamma, points]) for gamma in gammas])


def _rays(squares: _Squares, estimate: np.ndarray) -> np.ndarray:
    """Directions from the estimate, evenly spread once the parameters' correlation is taken out: [rays, parameters]."""
    if len(estimate) == 1:
        return np.array([[-1.0], [1.0]])
    step = np.maximum(1e-6 * estimate, 1e-9)
    slopes = [
        (squares.residuals(estimate + step * axis) - squares.residuals(estimate)) / (step @ axis)
        for axis in np.eye(len(estimate))
    ]
    jacobian = np.column_stack(slopes)
    scale = np.linalg.norm(jacobian, axis=0)
    _, singular, axes = np.linalg.svd(jacobian / scale, full_matrices=False)
    angles = np.linspace(0, 2 * math.pi, 360, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    return circle / np.maximum(singular, 1e-9 * singular[0]) @ axes / scale


def _lack_of_fit(n: np.ndarray, values: np.ndarray, squares: float, law: Law) -> float:
    """F test of the law against the means at each n; NaN without repeats, or without more counts than parameters."""
    counts, groups = np.unique(n, return_inverse=True)
    means = np.bincount(groups, values) / np.bincount(groups)
    pure = float(((values - means[groups]) ** 2).sum())
    df_pure, df_lack = len(n) - len(counts), len(counts) - law.size
    if df_pure < 1 or df_lack < 1 or not pure > 0:
        return math.nan
    ratio = max(squares - pure, 0.0) / df_lack / (pure / df_pure)
    return float(fdtrc(df_lack, df_pure, ratio))


def fit(counts: np.ndarray, throughput: np.ndarray, law: Law, relative_errors: bool = True) -> Fit:
    """Fits a law by nonlinear least squares.

    Args:
        counts: [runs] number of devices of each run.
        throughput: [runs] examples per second.
        law: which law.
        relative_errors: residuals of log throughput, as runs spread by percent (the default); False: of throughput,
            as published fits have them.

    Raises:
        CannotFitError: fewer distinct counts than parameters, no more runs than parameters, or a value that is not a
            positive number.
    """
    n, x = np.asarray(counts, float), np.asarray(throughput, float)
    if not (np.all(np.isfinite(x)) and np.all(x > 0) and np.all(n >= 1)):
        raise CannotFitError("throughput and number of devices must be positive numbers")
    distinct = np.unique(n)
    if len(distinct) < law.size:
        raise CannotFitError(f"{law.name} needs {law.size} numbers of devices, {len(distinct)} were measured")
    df = len(n) - law.size
    if df < 1:
        raise CannotFitError(f"{law.name} needs more than {law.size} runs to know its own error, there are {len(n)}")
    squares = _Squares(law, n, x, relative_errors)
    estimate = _optimum(squares)
    estimate = np.where(estimate <= _ZERO, 0.0, estimate)
    total, best, _ = (float(value) for value in squares.solve(*estimate))
    gamma = math.exp(best) if relative_errors else best
    scale = 1.0 if relative_errors else float((x**2).mean())
    region = np.empty((0, law.size))
    if total > 1e-20 * scale * len(n):  # else the points lie on the curve to the last digit: no spread to learn from
        region = _region(squares, estimate, total * (1 + t_quantile(df) ** 2 / df))
    values = np.array([gamma, *estimate])
    lows, highs = (region.min(axis=0), region.max(axis=0)) if len(region) else (values * math.nan, values * math.nan)
    intervals = [Interval(float(v), float(a), float(b)) for v, a, b in zip(values, lows, highs, strict=True)]
    names = [parameter.name for parameter in law.parameters]
    return Fit(
        law,
        intervals[0],
        dict(zip(names, intervals[1:], strict=True)),
        tuple(p.name for p, v in zip(law.parameters, estimate, strict=True) if v <= _ZERO or v >= p.highest),
        math.sqrt(total / df),
        df,
        len(n),
        tuple(int(count) for count in distinct),
        _lack_of_fit(n, np.log(x) if relative_errors else x, total, law),
        region,
    )


def fits(counts: np.ndarray, throughput: np.ndarray, scaling: Scaling) -> tuple[list[Fit], list[str]]:
    """Every law that suits a kind of scaling and that the points allow, and why the others were not fitted."""
    found, refused = [], []
    for law in LAWS[scaling]:
        try:
            found.append(fit(counts, throughput, law))
        except CannotFitError as error:
            refused.append(str(error))
    return found, refused


def preferred(found: Sequence[Fit]) -> Fit | None:
    """The law to draw: the simplest that fits, unless coherency is surely there; None when none fits.

    A law fits when its lack of fit is not below 1% (unknown without repeats: then it is not held against it).
    """
    fitting = [each for each in found if not each.lack_of_fit < LACK_OF_FIT]
    for each in fitting:
        if "kappa" in each.parameters and each.parameters["kappa"].low > 0:
            return each
    return fitting[0] if fitting else None
