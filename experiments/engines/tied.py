"""`python -m experiments.engines.tied PARENT MODULE ARGUMENTS...`: a module as a process that dies with its parent.

A gang on one host does this between fork and exec. A Ray actor has threads, where running Python there is unsafe. Ray
may kill an actor without a word to what it started, which would train on and hold its GPU.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, module: str, arguments: list[str]) -> None:
    """Ties this process to the thread of `parent` that started it, then becomes the module."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended in between, and the signal with it
        os.kill(os.getpid(), signal.SIGKILL)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
