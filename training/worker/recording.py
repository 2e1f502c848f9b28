"""Keeps a recorder going while a run lasts, and finishes its work later when MLflow was away for too long."""

import gc
import logging
import threading
import time

from training.names import RunStatus
from training.run_folder import RunFolder
from training.worker.recorder import Recorder, RecorderBusyError, RunGoneError
from training.worker.staging import stage

log = logging.getLogger(__name__)

SHORTEST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 3.0
LOOK_EVERY_S = 10.0
"""Somebody may ask the run to stop in MLflow alone: where no controller hears it, its supervisor does."""
MISSING_FOR_S = 20.0
"""A run that MLflow does not know for this long is gone: a server that is just starting may know none yet."""

# Recording must not be seen in the training's timing: the pause after each flush keeps it to this part of one core,
# unless that would show the run's progress later than the longest pause.
_SHARE_OF_A_CORE = 1 / 150


class Recording(threading.Thread):
    """Records a run from a thread of its own, so that a tracking server that hangs delays nothing else.

    Attributes:
        gone: why there is no run to record any more; empty while there is one.
        ended_before: the status of a run that had ended before it began; it is left as it is.
        cancelled: whether somebody asked to cancel the run, seen every LOOK_EVERY_S.
        recorded: whether the end is in MLflow.
    """

    def __init__(self, folder: RunFolder):
        super().__init__(name="recording", daemon=True)
        self._folder = folder
        self._recorder: Recorder | None = None
        self._connected = False
        self._look_at = 0.0
        self._complete = threading.Event()
        self._missing_since: float | None = None
        self._trouble = ""
        self._trouble_since = 0.0
        self._notices: list[str] = []
        self.gone = ""
        self.ended_before: RunStatus | None = None
        self.cancelled = False
        self.recorded = False

    def finish(self, notices: list[str]) -> None:
        """Everything is in the journals and staged: record it all, set the status, and end."""
        self._notices = notices
        self._complete.set()

    def run(self) -> None:
        """Records until the end is recorded or the run is gone; whatever fails is tried again."""
        while not self.gone:
            began = time.monotonic()
            try:
                if self._step():
                    self._recovered()
                    break
                self._recovered()
                pause = (time.monotonic() - began) / _SHARE_OF_A_CORE
                pause = min(max(pause, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
            except RunGoneError as error:
                self._missing(error)
                pause = LONGEST_PAUSE_S
            except Exception as error:
                # Whatever it is (the network, a locked database, a full disk), the journals keep it all.
                self._failed(error)
                pause = LONGEST_PAUSE_S
            if not self._complete.is_set():
                self._complete.wait(pause)
            elif self._trouble or self._missing_since is not None:
                time.sleep(SHORTEST_PAUSE_S)
        if self._recorder is not None:
            self._recorder.close()

    def _step(self) -> bool:
        """Records what there is. Returns whether there is nothing more to do, ever."""
        complete = self._complete.is_set()
        if self._recorder is None:
            self._recorder = Recorder(self._folder)
        if not self._connected:
            status, cancelled = self._recorder.connect(start=not complete)
            self._connected = True
            # MLflow's half million objects stay as they are: looking through them for garbage, as Python does once
            # while the run goes on, takes a fifth of a second from the training.
            gc.freeze()
            self.cancelled, self._look_at = cancelled, time.monotonic() + LOOK_EVERY_S
            self.ended_before = status if status.is_terminal else None
        if self.ended_before is not None:
            return True
        while self._recorder.flush():
            self._missing_since = None
        if not complete:
            if time.monotonic() >= self._look_at:
                self.cancelled = self._recorder.cancel_requested()
                self._look_at = time.monotonic() + LOOK_EVERY_S
            return False
        for text in self._notices:
            self._recorder.notice(text)
        self._recorder.upload()
        self.recorded = self._recorder.conclude()
        return True

    def _missing(self, error: RunGoneError) -> None:
        now = time.monotonic()
        self._missing_since = self._missing_since if self._missing_since is not None else now
        if error.certain or now - self._missing_since >= MISSING_FOR_S:
            self.gone = str(error)

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if not self._trouble:
            self._trouble_since = time.monotonic()
            log.warning("cannot record just now, will try again: %s", text, exc_info=error)
        elif text != self._trouble:
            log.warning("still cannot record: %s", text)
        self._trouble = text

    def _recovered(self) -> None:
        if self._trouble:
            log.info("recording again after %.0f s", time.monotonic() - self._trouble_since)
            self._trouble = ""


def replay(folder: RunFolder, otherwise: tuple[RunStatus, str] | None = None) -> bool:
    """Records what a supervisor could not, from the run's folder: points, artifacts, and the end.

    Safe to call at any time and again: it leaves a run alone that is being recorded, or is recorded already.

    Args:
        folder: the run's folder.
        otherwise: status and reason to set where the supervisor ended without deciding (it was killed itself).

    Returns:
        Whether the run is recorded to its end.

    Raises:
        RunGoneError: the run is not in MLflow.
        Exception: what MLflow raises; call again later.
    """
    try:
        recorder = Recorder(folder)
    except RecorderBusyError:
        return False
    try:
        status, _ = recorder.connect(start=False)
        if recorder.state.concluded:
            # Opened again since, by a notebook that logs an evaluation into it and died: its end is what it was.
            return status.is_terminal or recorder.conclude(otherwise)
        while recorder.flush():
            log.debug("replaying %s", folder)
        if recorder.state.end is None and otherwise is None:
            return False
        for text in stage(folder):
            recorder.notice(text)
        recorder.upload()
        return recorder.conclude(otherwise)
    finally:
        recorder.close()
