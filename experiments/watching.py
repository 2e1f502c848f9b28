"""Follows one run from outside: a line for each change of state and one for each epoch."""

import math
import time
import typing
from collections.abc import Callable

from experiments import queue
from experiments.results import history
from experiments.results.columns import row
from experiments.settings import Settings
from experiments.store_errors import store_errors
from experiments.terminal import safe
from experiments.wording import duration
from training.names import Metric, RunStatus, Tag

POLL_S = 1.0
_TIMES = (Metric.TIME_EPOCH_TRAIN, Metric.EXAMPLES_PER_SECOND)
_NOT_OF_THE_MODEL = ("time/", "throughput/", Metric.SYSTEM_PREFIX)


class Watcher:
    """Says what is new about a run each time it is asked to look.

    Args:
        settings: where the run is recorded.
        run_id: the run.
        say: takes one line at a time.
    """

    def __init__(self, settings: Settings, run_id: str, say: Callable[[str], None]):
        self._settings, self._run_id, self._say = settings, run_id, say
        self._state = ""
        self._epochs_said = 0
        self._is_away = False
        self.status = RunStatus.SCHEDULED
        self.cancel_requested = False

    def look(self) -> bool:
        """Looks once. A store that does not answer is said once, and asked again the next time.

        Returns:
            Whether somebody has asked to cancel the run.

        Raises:
            UnknownRun: the run was deleted.
        """
        try:
            self._look()
        except store_errors() as error:
            if not self._is_away:
                self._is_away = True
                self._say(f"the tracking store does not answer ({safe(str(error))[:200]}); the run goes on")
            return self.cancel_requested
        if self._is_away:
            self._is_away = False
            self._say("the tracking store answers again")
        return self.cancel_requested

    def until_the_end(self, sleep: Callable[[float], None] = time.sleep) -> RunStatus:
        """Looks until the run has ended. Raises UnknownRun when it was deleted."""
        while True:
            self.look()
            if self.status.is_terminal:
                return self.status
            sleep(POLL_S)

    def _look(self) -> None:
        run = queue.get_run(self._settings, self._run_id)
        now = row(run)
        self.status = RunStatus(run.info.status)
        self.cancel_requested = bool(run.data.tags.get(Tag.CANCEL_REQUESTED))
        if now["epoch"] > self._epochs_said:
            model = [name for name in run.data.metrics if not name.startswith(_NOT_OF_THE_MODEL)]
            self._say_epochs(now, sorted(model))
        detail = now["reason"] or now["phase"]
        state = f"{self.status}: {detail}" if detail else str(self.status)
        # Between two epochs, training and validating alternate; their lines would drown those of the epochs.
        if state != self._state and not (self._epochs_said and not now["reason"] and self.status is RunStatus.RUNNING):
            self._state = state
            self._say(safe(state))

    def _say_epochs(self, now: dict[str, typing.Any], model: list[str]) -> None:
        points = history(self._settings, self._run_id, [*model, *_TIMES])
        for epoch in range(self._epochs_said, now["epoch"]):
            here = points[points.step == epoch]
            values = dict(zip(here.metric, here.value, strict=True))
            if values:
                self._say(epoch_line(epoch, now["epochs"], values, now["seconds_left"]))
        self._epochs_said = now["epoch"]


def epoch_line(epoch: int, epochs: int | None, values: dict[str, float], seconds_left: float) -> str:
    """One epoch as a line of text.

    Args:
        epoch: from 0.
        epochs: how many there will be, if that is known.
        values: metric name -> value at this epoch.
        seconds_left: until the end of training; NaN when it is not known.
    """
    parts = [f"{name} {value:.4f}" for name, value in values.items() if name not in _TIMES]
    if Metric.TIME_EPOCH_TRAIN in values:
        parts.append(f"{duration(values[Metric.TIME_EPOCH_TRAIN])} training")
    if Metric.EXAMPLES_PER_SECOND in values:
        parts.append(f"{values[Metric.EXAMPLES_PER_SECOND]:,.0f} examples/s")
    if math.isfinite(seconds_left) and epochs and epoch + 1 < epochs:
        parts.append(f"{duration(seconds_left)} left")
    total = f"/{epochs}" if epochs else ""
    return safe(f"epoch {epoch + 1}{total}: {', '.join(parts)}")
