"""Carries runs out for a command, and waits for their end. Ctrl-C cancels what is not done, and waits for that too."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments import foreground, queue
from experiments.answers import say
from experiments.interruption import uninterrupted
from experiments.settings import Settings
from experiments.terminal import safe
from experiments.watching import Watcher
from training.names import RunStatus
from training.spec import RunSpec

CANCEL_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How a run that was waited for has ended. One that was interrupted may still be about to end."""

    run_id: str
    status: RunStatus
    interrupted: bool = False


def here(settings: Settings, spec: RunSpec, submission: str) -> Ended:
    """Submits and carries out. A run that an earlier command with this token has started is only waited for."""
    run_id, under_way = "", None
    try:
        with uninterrupted():
            run_id = foreground.submit(settings, spec, submission)
            watcher = _watcher(settings, run_id, spec)
            started = foreground.Foreground(settings, run_id)
            if started.start():
                under_way = started
        if under_way is None:
            return Ended(run_id, watcher.until_the_end())
        under_way.wait(watcher.look)
    except KeyboardInterrupt:
        if not run_id:
            raise
        say("stopping the run (Ctrl-C again leaves without waiting for its record)")
        queue.cancel(settings, run_id)
        if under_way is None:
            return Ended(run_id, _until_cancelled(watcher, _deadline()), interrupted=True)
        under_way.cancel()
        under_way.wait(watcher.look)
        watcher.look()
        return Ended(run_id, watcher.status, interrupted=True)
    finally:
        if under_way is not None:
            under_way.close()
    watcher.look()
    return Ended(run_id, watcher.status)


def elsewhere(settings: Settings, spec: RunSpec, submission: str) -> Ended:
    """Submits, and waits until the controller has had it carried out."""
    run_id = ""
    try:
        with uninterrupted():
            run_id = queue.submit(settings, spec, submission)
            watcher = _watcher(settings, run_id, spec)
        return Ended(run_id, watcher.until_the_end())
    except KeyboardInterrupt:
        if not run_id:
            raise
        say("cancelling the run (Ctrl-C again leaves without waiting for its end)")
        queue.cancel(settings, run_id)
        return Ended(run_id, _until_cancelled(watcher, _deadline()), interrupted=True)


Submission = Callable[[RunSpec], str]


def all_here(settings: Settings, specs: Sequence[RunSpec], token: Submission) -> list[Ended]:
    """Carries runs out one after the other. An interruption ends the one under way and starts no other.

    Args:
        settings: where they are recorded.
        specs: what to run, in this order.
        token: gives each run's submission token.
    """
    ended: list[Ended] = []
    for spec in specs:
        ended.append(here(settings, spec, token(spec)))
        if ended[-1].interrupted:
            if left := len(specs) - len(ended):
                say(f"{left} more were not started")
            break
    return ended


def all_elsewhere(settings: Settings, specs: Sequence[RunSpec], token: Submission) -> list[Ended]:
    """Submits all, then waits until the controller has had them carried out. Arguments as `all_here`."""
    watchers: dict[str, Watcher] = {}
    try:
        for spec in specs:
            with uninterrupted():
                run_id = queue.submit(settings, spec, token(spec))
                watchers[run_id] = _watcher(settings, run_id, spec, f"{spec.display_name}: ")
        return [Ended(run_id, watcher.until_the_end()) for run_id, watcher in watchers.items()]
    except KeyboardInterrupt:
        if not watchers:
            raise
        say("cancelling the runs that are not done (Ctrl-C again leaves without waiting for their end)")
        for run_id in watchers:
            queue.cancel(settings, run_id)
        deadline = _deadline()
        return [Ended(run_id, _until_cancelled(each, deadline), interrupted=True) for run_id, each in watchers.items()]


def _watcher(settings: Settings, run_id: str, spec: RunSpec, before: str = "") -> Watcher:
    say(f"run {run_id} {safe(spec.display_name)}")
    watcher = Watcher(settings, run_id, lambda line: say(safe(before) + line))
    watcher.look()
    return watcher


def _deadline() -> float:
    return time.monotonic() + CANCEL_DEADLINE_S


def _until_cancelled(watcher: Watcher, deadline: float) -> RunStatus:
    watcher.look()
    while not watcher.status.is_terminal and time.monotonic() < deadline:
        time.sleep(0.2)
        watcher.look()
    return watcher.status
