"""The doctor: what this machine has, what is wrong with it, and how to mend it. Imports no TensorFlow."""

import traceback
from collections.abc import Callable, Iterator

from experiments.doctor import devices, services, software
from experiments.doctor.finding import Finding, Level, problem
from experiments.settings import Settings

__all__ = ["CHECKS", "Finding", "Level", "findings"]

CHECKS: dict[str, Callable[[Settings], Iterator[Finding]]] = {
    "Python": software.python,
    "Packages": software.packages,
    "TensorFlow": devices.tensorflow,
    "Processor": devices.processor,
    "GPU": devices.gpu,
    "Data sets": services.datasets,
    "Tracking": services.tracking,
    "Ray": services.ray,
    "Ports": services.ports,
    "Disk": services.disk,
}
"""What is looked at, in the order it is told."""


def findings(settings: Settings) -> list[Finding]:
    """Looks at everything. The first time TensorFlow is asked in a process of its own, which takes seconds.

    Returns:
        At least one finding for each area of `CHECKS`. A check that fails itself is a finding too.
    """
    found: list[Finding] = []
    for area, check in CHECKS.items():
        try:
            found += list(check(settings))
        except Exception as error:  # whatever is broken on this machine, the rest is still to be told
            last = traceback.extract_tb(error.__traceback__)[-1]
            found.append(
                problem(
                    area,
                    "this could not be checked",
                    "please report it, with the lines that go with it",
                    f"{type(error).__name__}: {error}\nat {last.filename}:{last.lineno}",
                )
            )
    return found
