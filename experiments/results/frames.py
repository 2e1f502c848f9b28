"""MLflow -> the table of runs, kept up to date step by step."""

import gc
import threading
import time
import typing
from collections.abc import Iterator
from contextlib import contextmanager

import pandas as pd

from experiments import queue
from experiments.results.columns import Row, frame, row
from experiments.settings import Settings
from training.names import RunStatus

if typing.TYPE_CHECKING:
    from mlflow.entities import Run

PAGE = 1_000  # runs a request; MLflow answers this many unless told otherwise
_BY_ID = 50  # run ids in one filter: a request to a server must not grow without bound
_OVERLAP_MS = 10_000  # clocks of two machines that submit may differ by this much
_DELETIONS_EVERY_S = 30.0
_EVERYTHING_EVERY_S = 600.0
_LIVE = " AND ".join(f"attributes.status != '{status}'" for status in RunStatus if status.is_terminal)


class Results:
    """All runs of the experiment as a table. One object serves many threads and many sessions.

    The first read asks for everything. Later ones ask only for runs that are live, that were live, or that are new;
    every half minute for deletions, and every ten minutes for everything, which catches what no filter finds (a run
    renamed in MLflow's own page, or imported with an old date).
    """

    def __init__(self, settings: Settings, max_age_s: float = 1.0):
        """Reads nothing yet.

        Args:
            settings: where the runs are.
            max_age_s: a read within this time of the last one is answered from memory, in seconds.
        """
        self._settings = settings
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._unfinished: set[str] = set()
        self._deleted: set[str] = set()
        self._frame: pd.DataFrame | None = None
        self._experiment_id = ""
        self._read_at = self._deletions_at = self._everything_at = -float("inf")

    def runs(self) -> pd.DataFrame:
        """The runs, newest first, with `RUN_COLUMNS`. The caller may change the table it gets.

        Raises:
            ExperimentDeletedError: someone deleted the experiment; the message says how to restore it.
            MlflowException: the tracking store does not answer.
        """
        with self._lock:
            self._refresh()
            if self._frame is None:
                self._frame = frame(self._sorted())
            return self._frame.copy()

    def rows(self) -> list[Row]:
        """The same as plain rows, without building a table."""
        with self._lock:
            self._refresh()
            return [dict(each) for each in self._sorted()]

    def reload(self) -> None:
        """Makes the next read ask for everything."""
        with self._lock:
            self._read_at = self._everything_at = -float("inf")

    def _sorted(self) -> list[Row]:
        return sorted(self._rows.values(), key=lambda each: (-(each["submitted"] or 0), each["run_id"]))

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._read_at < self._max_age_s:
            return
        if now - self._everything_at >= _EVERYTHING_EVERY_S or not self._experiment_id:
            self._read_everything()
            self._everything_at = self._deletions_at = now
        else:
            self._read_changes()
            if now - self._deletions_at >= _DELETIONS_EVERY_S:
                self._read_deletions()
                self._deletions_at = now
        self._read_at = now

    def _read_everything(self) -> None:
        self._experiment_id = self._settings.experiment_id(create=False)
        self._rows, self._unfinished, self._frame = {}, set(), None
        if self._experiment_id:
            with _no_garbage_collection():
                # Oldest first: runs that come in meanwhile go to the end and shift no page.
                for run in self._search("", order="attributes.start_time ASC"):
                    self._keep(run)
                self._deleted = self._now_deleted()

    def _read_changes(self) -> None:
        were_live = {run_id for run_id, each in self._rows.items() if _is_live(each["status"])} | self._unfinished
        seen = set()
        for run in self._search(_LIVE):
            seen.add(run.info.run_id)
            self._keep(run)
        for run in self._search(f"attributes.start_time > {self._newest_ms() - _OVERLAP_MS}"):
            seen.add(run.info.run_id)
            self._keep(run)
        self._read_again(were_live - seen)

    def _read_deletions(self) -> None:
        deleted = self._now_deleted()
        for run_id in deleted & self._rows.keys():
            self._drop(run_id)
        self._read_again(self._deleted - deleted)
        self._deleted = deleted

    def _read_again(self, run_ids: set[str]) -> None:
        """Reads runs by id; one that is not there any more was deleted."""
        listed = sorted(run_ids)
        for start in range(0, len(listed), _BY_ID):
            ids = listed[start : start + _BY_ID]
            found = list(self._search(f"attributes.run_id IN ({', '.join(repr(each) for each in ids)})"))
            for run in found:
                self._keep(run)
            for run_id in set(ids) - {run.info.run_id for run in found}:
                self._drop(run_id)

    def _newest_ms(self) -> int:
        """Submission time of the newest run, never in the future: a wrong clock elsewhere must not hide new runs."""
        newest = max((each["submitted"] or 0 for each in self._rows.values()), default=0)
        return min(newest, round(time.time() * 1000))

    def _now_deleted(self) -> set[str]:
        from mlflow.entities import ViewType

        # The newest page only: an older deletion is found when everything is read again.
        found = self._settings.client().search_runs(
            [self._experiment_id], "", run_view_type=ViewType.DELETED_ONLY, max_results=PAGE
        )
        return {run.info.run_id for run in found}

    def _search(self, filter_text: str, order: str = "attributes.start_time DESC") -> Iterator["Run"]:
        client, token = self._settings.client(), None
        while True:
            page = client.search_runs(
                [self._experiment_id], filter_text, max_results=PAGE, order_by=[order], page_token=token
            )
            yield from page
            token = page.token
            if not token:
                return

    def _keep(self, run: "Run") -> None:
        run_id = run.info.run_id
        if queue.is_unfinished(run):
            self._unfinished.add(run_id)
            return
        self._unfinished.discard(run_id)
        new = row(run)
        if self._rows.get(run_id) != new:
            self._rows[run_id] = new
            self._frame = None

    def _drop(self, run_id: str) -> None:
        self._unfinished.discard(run_id)
        if self._rows.pop(run_id, None) is not None:
            self._frame = None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """MLflow's SQL store makes sixty objects a run; walking them over and over took half of the time of a full read."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_live(status: str) -> bool:
    return status in (RunStatus.SCHEDULED, RunStatus.RUNNING)
