"""`make run`: starts MLflow, Ray, the controller and the page, prints the address, and ends them all."""

import argparse
import contextlib
import fcntl
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from experiments.components import (
    Component,
    answers,
    is_this_machine,
    plan,
    reachable,
    taken_ports,
    token_file,
)
from experiments.settings import CHECKOUT, Settings, SettingsError
from experiments.stack import PART, Stack, end_all, marked, say

READY_DEADLINE_S = 180
RAY_SESSIONS_KEPT = 3  # Ray's logs of the latest starts; it never removes one itself

# A Unix socket's path has at most 107 bytes, and this is the longest that Ray makes.
LONGEST_HOME = 107 - len("/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")


def _token(settings: Settings) -> str:
    """The secret, made on first use."""
    path = token_file(settings)
    if not path.exists():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    return path.read_text().strip()


@contextlib.contextmanager
def _hold(settings: Settings) -> Iterator[None]:
    """Keeps a second stack away from this data folder, and ends what an earlier one left when it was killed.

    Raises:
        SettingsError: a stack with this data folder is running.
    """
    try:
        settings.locks_folder.mkdir(parents=True, exist_ok=True)
        file = open(settings.locks_folder / "stack.lock", "a+")  # noqa: SIM115 - closed below
    except OSError as error:
        raise SettingsError(
            f"SPEEDUP_LAB_HOME={settings.home} cannot be used ({error.strerror}): set it to a folder you can write"
        ) from None
    with file:
        try:
            # Unlike flock's, this lock is not passed on to the processes that honcho forks.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise SettingsError(
                f"SPEEDUP_LAB_HOME={settings.home} is in use by another `make run` (process {file.read().strip()}): "
                "stop that one, or set SPEEDUP_LAB_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        if leftovers := marked(settings.home):
            say(f"Ending {len(leftovers)} processes that an earlier `make run` left when it was killed ...")
            end_all(leftovers, 5)
        yield


@contextlib.contextmanager
def _short_name(home: Path) -> Iterator[Path]:
    """The data folder under a path that is short enough for Ray's sockets: its own, or a link in a private folder.

    Raises:
        SettingsError: there is nowhere to put the link.
    """
    if len(os.fsencode(home)) <= LONGEST_HOME:
        yield home
        return
    room = LONGEST_HOME - len("/lab-12345678/home")
    place = next((place for place in (tempfile.gettempdir(), "/tmp") if len(place) <= room), None)
    for left in Path(place or tempfile.gettempdir()).glob("lab-*/home"):
        with contextlib.suppress(OSError):  # somebody else's
            if os.readlink(left) == str(home):  # of a stack that was killed: this one has the data folder now
                left.unlink()
                left.parent.rmdir()
    try:
        private = tempfile.TemporaryDirectory(prefix="lab-", dir=place)
    except OSError:
        raise SettingsError(
            f"SPEEDUP_LAB_HOME={home} is too long for the sockets that Ray makes in it, and /tmp cannot hold a link to "
            f"it: set it to a folder of at most {LONGEST_HOME} characters"
        ) from None
    with private:
        link = Path(private.name, "home")
        link.symlink_to(home)
        yield link


def _make_room(settings: Settings) -> None:
    """Makes the folders of this start, and removes what earlier ones left for nobody."""
    shutil.rmtree(settings.home / "tmp", ignore_errors=True)
    for name in ("tmp", "logs", "ray"):
        (settings.home / name).mkdir(exist_ok=True)
    (settings.home / "ray" / "ray_current_cluster").unlink(missing_ok=True)  # Ray would say that it overwrites it
    for old in sorted((settings.home / "ray").glob("session_2*"))[:-RAY_SESSIONS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _announce(settings: Settings, components: tuple[Component, ...], stack: Stack) -> None:
    """Prints the address once everything answers, or what does not."""
    deadline = time.monotonic() + READY_DEADLINE_S
    waiting = list(components)
    while waiting and not stack.is_ending:
        waiting = [component for component in waiting if not component.is_ready]
        if waiting and time.monotonic() > deadline:
            names = ", ".join(component.name for component in waiting)
            say(f"Still no answer from {names} after {READY_DEADLINE_S} s: see the lines above that start with it.")
            deadline = float("inf")
        time.sleep(0.2)
    if not stack.is_ending:
        address = f"http://{reachable(settings.host, for_people=True)}:{settings.port}"
        bold, plain = ("\033[1;32m", "\033[0m") if sys.stdout.isatty() else ("", "")
        say(f"\n{bold}  Speedup Lab is ready: {address}   (Ctrl-C ends it){plain}\n")


def serve(settings: Settings, environ: Mapping[str, str]) -> int:
    """Runs the stack until it is ended.

    Returns:
        0 when a signal ended it, 1 when a component ended by itself.

    Raises:
        SettingsError: the data folder or a port is taken, or cannot be used.
    """
    with _hold(settings), _short_name(settings.home) as short:
        planned = plan(settings, environ, short, _token(settings))
        if problems := taken_ports(planned.ports):
            raise SettingsError("\n".join(problems))
        settings.prepare()
        say(f"Starting {', '.join(component.name for component in planned.components)}; data in {settings.home}")
        store = planned.environment["MLFLOW_TRACKING_URI"]
        if is_this_machine(store) and not is_this_machine(settings.ray_address):
            say(
                f"The machines of the Ray cluster cannot record to {store} if they are others: "
                "set MLFLOW_TRACKING_URI to a server that all of them reach"
            )
        _make_room(settings)
        stack = Stack(settings.home, lambda stack: _announce(settings, planned.components, stack))
        for component in planned.components:
            command = component.shell_command(settings.python, settings.home / "logs" / f"{component.name}.log")
            stack.add_process(
                component.name, command, env={**planned.environment, PART: component.name}, cwd=str(CHECKOUT)
            )
        stack.loop()
    if stack.failure:
        say(
            f"Everything was ended because a component failed time and again: {stack.failure}. "
            f"What it said is above or in {settings.home / 'logs'}."
        )
        return 1
    say("Everything has ended. The data stay.")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Exit code 2 and one line a problem when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m experiments.serve", description=__doc__)
    parser.add_argument("--wait-for", metavar="ADDRESS", help="only wait until this address answers")
    if address := parser.parse_args(arguments).wait_for:
        while not answers(address):
            time.sleep(0.2)
        return 0
    try:
        return serve(Settings.from_environment(), os.environ)
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:  # before anything was started
        return 130


if __name__ == "__main__":
    sys.exit(main())
