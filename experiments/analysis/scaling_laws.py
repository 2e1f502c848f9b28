"""The laws of scaling, as throughput of n devices relative to one device, and what their parameters say in words."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Scaling(StrEnum):
    """What stays the same when devices are added. The two never share a curve."""

    STRONG = "strong scaling (fixed global batch)"
    WEAK = "weak scaling (fixed per-replica batch)"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a law: its limits, and what it says.

    Attributes:
        name: a Greek letter's name, as in the source of the law.
        highest: upper bound; the lower one is 0.
        words: a sentence with {value}, {low}, {high} and {devices} to fill in.
    """

    name: str
    highest: float
    words: str


@dataclass(frozen=True)
class Law:
    """A law: throughput of n devices over that of one, `relative(n, *parameters)`, elementwise, 1 at n = 1."""

    name: str
    source: str
    parameters: tuple[Parameter, ...]
    relative: Callable[..., np.ndarray]

    @property
    def size(self) -> int:
        """Parameters with the throughput of one device, gamma."""
        return len(self.parameters) + 1


def _amdahl(n: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    return n / (1 + sigma * (n - 1))


def _gustafson(n: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return n - alpha * (n - 1)


def _universal(n: np.ndarray, sigma: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    return n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


AMDAHL = Law(
    "Amdahl's law",
    "G. M. Amdahl, AFIPS Spring Joint Computer Conference (1967)",
    (Parameter("sigma", 1.0, "{value} of a step does not get faster with more {devices} ({low} to {high})"),),
    _amdahl,
)
GUSTAFSON = Law(
    "Gustafson's law",
    "J. L. Gustafson, Communications of the ACM 31 (1988)",
    (
        Parameter(
            "alpha",
            1.0,
            "{value} of what each further one of the {devices} could add is lost ({low} to {high})",
        ),
    ),
    _gustafson,
)
UNIVERSAL = Law(
    "Universal Scalability Law",
    "N. J. Gunther, Guerrilla Capacity Planning, Springer (2007), chapters 4 to 6",
    (
        Parameter("sigma", 1.0, "{value} of a step waits its turn: contention ({low} to {high})"),
        Parameter(
            "kappa",
            10.0,
            "every pair of {devices} costs {value} of a step to be kept in agreement: coherency ({low} to {high})",
        ),
    ),
    _universal,
)

LAWS: dict[Scaling, tuple[Law, ...]] = {
    Scaling.STRONG: (AMDAHL, UNIVERSAL),
    Scaling.WEAK: (GUSTAFSON, UNIVERSAL),
}
"""The laws that are fitted to a kind of scaling, the one with fewer parameters first."""
