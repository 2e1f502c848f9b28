"""What the loop measures: windows of steps and epochs, in seconds of wall clock, taken after the device has finished.

A window is one call of the compiled function: its clock starts before the input of its first step is asked for and
stops after the last step's results are on the host side of the device. Nothing but training happens in between, so
validation, saving and logging never count.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import tensorflow as tf


@dataclass(frozen=True)
class Window:
    """One call of the compiled training function.

    Attributes:
        step: training steps done since the start of the run when the window ended.
        steps: steps in the window.
        examples: real examples in the window, over all replicas of all workers.
        seconds: wall clock, device finished.
        input_wait: seconds of it that the steps waited for input, the mean over this worker's replicas' host.
        ended_at: unix seconds.
    """

    step: int
    steps: int
    examples: int
    seconds: float
    input_wait: float
    ended_at: float

    @property
    def examples_per_second(self) -> float:
        """Throughput of this window."""
        return self.examples / self.seconds


@dataclass
class EpochTiming:
    """An epoch's training time: the sum of its windows."""

    seconds: float = 0.0
    input_wait: float = 0.0
    examples: int = 0
    windows: list[Window] = field(default_factory=list)

    def add(self, window: Window) -> None:
        """Counts a window in."""
        self.seconds += window.seconds
        self.input_wait += window.input_wait
        self.examples += window.examples
        self.windows.append(window)

    @property
    def examples_per_second(self) -> float:
        """Real examples over training time; 0 for an epoch without a window."""
        return self.examples / self.seconds if self.seconds else 0.0


def synchronizer(device: str) -> Callable[[], None]:
    """A function that returns when the device has finished all it was given.

    A function on a CPU returns when its ops are done. A GPU works on after the call has returned
    (tf.test.experimental.sync_devices waits for its streams).
    """
    if device == "gpu":
        return tf.test.experimental.sync_devices
    return _already_finished


def _already_finished() -> None:
    """CPU ops are done when the call returns."""
