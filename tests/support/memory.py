"""The memory of the test process itself, which the kernel passes on to what it reports of its children."""

import resource


def own_peak_mb() -> float:
    """The most memory this process ever held, in MB (10^6 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
