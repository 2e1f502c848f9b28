"""Processes that have TensorFlow from the start: forked from one that has imported it and not used it.

Importing TensorFlow takes longer than what most tests do with it. What a process decides before or while TensorFlow is
imported is not to be tested in these: see `fresh_process`.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import threading
import traceback
import typing
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_context: list[ForkServerContext] = []


def _forkserver() -> ForkServerContext:
    if not _context:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.support.with_tensorflow"])
        _context.append(context)
    return _context[0]


def run_forked(
    what: Callable[..., int],
    *arguments: typing.Any,
    environment: Mapping[str, str],
    folder: Path = ROOT,
    stdout: Path,
    stderr: Path,
    timeout: float = 240.0,
) -> int | None:
    """Calls a function of a module in a process of its own, with file descriptors 1 and 2 on files.

    Args:
        what: gives the exit code.
        arguments: of the function.
        environment: the whole of it, from before the call on.
        folder: the working directory.
        stdout, stderr: are appended to.
        timeout: seconds after which it is killed.

    Returns:
        The exit code, -N when signal N killed it; None when it took too long.
    """
    # What TensorFlow writes there it removes at exit only, which a forked process does not reach.
    with tempfile.TemporaryDirectory(prefix="forked-") as temporary:
        process = _forkserver().Process(
            target=_call,
            args=(what, arguments, {**environment, "TMPDIR": temporary}, str(folder), str(stdout), str(stderr)),
            daemon=True,
        )
        process.start()
        try:
            process.join(timeout)
            code = process.exitcode
        finally:
            process.kill()
            process.join()
    process.close()
    return code


def _call(
    what: Callable[..., int],
    arguments: tuple[typing.Any, ...],
    environment: dict[str, str],
    folder: str,
    stdout: str,
    stderr: str,
) -> None:
    # A fork server goes on without what it could not import.
    assert "tensorflow" in sys.modules
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    for descriptor, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(file, descriptor)
        os.close(file)
    # The server's own are closed or somebody else's.
    sys.stdout, sys.stderr = (open(descriptor, "w", buffering=1, closefd=False) for descriptor in (1, 2))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # to be asked for anew
    os.chdir(folder)
    try:
        code = what(*arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # As abrupt as the end of a forked process is; what TensorFlow would do at exit is done in fresh ones.
    os._exit(code)


def _end_with_the_tests() -> None:
    tests = multiprocessing.parent_process()
    assert tests
    tests.join()
    os._exit(1)


def run_python_forked(script: str, environment: dict[str, str] | None = None, timeout: float = 120) -> typing.Any:
    """`fresh_process.run_python` in a process that has TensorFlow already."""
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        code = run_forked(
            _execute,
            script,
            environment={**os.environ, "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
            stdout=stdout,
            stderr=stderr,
            timeout=timeout,
        )
        assert code == 0, f"exit code {code}: {stderr.read_text(errors='replace')[-3000:]}"
        return json.loads(stdout.read_text().strip().splitlines()[-1])


def _execute(script: str) -> int:
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    return 0
