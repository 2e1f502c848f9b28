"""The code's own version: the commit of the checkout it runs from. Imports no TensorFlow."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_GIT_SECONDS = 5.0


@dataclass(frozen=True)
class Commit:
    """The code's commit, and whether tracked files differ from it. Empty outside a git repository."""

    commit: str = ""
    dirty: bool = False


def commit(folder: Path = CHECKOUT) -> Commit:
    """The commit of a checkout; empty where there is no repository, or no git."""
    # --untracked-files=no: data folders in a checkout may hold many files. No locks: somebody may be committing.
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):  # no git, or a disk that does not answer: a run goes on without
        return Commit()
    if answer.returncode:
        return Commit()
    lines = answer.stdout.splitlines()
    head = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    if head == "(initial)":
        return Commit()
    return Commit(head, any(not line.startswith("#") for line in lines))
