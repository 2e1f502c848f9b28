"""`python -m training.worker RUN_FOLDER`: carries out one submitted run on this host, and ends when it has ended."""

import sys
from pathlib import Path

from training.run_folder import RunFolder
from training.spec import SpecError
from training.worker.gang import SubprocessGang
from training.worker.supervisor import AlreadyStartedError, supervise

_USAGE = "usage: python -m training.worker RUN_FOLDER (the folder of a submitted run, with spec.json and launch.json)"


def main(arguments: list[str]) -> int:
    """Runs the folder named by the only argument. Returns the exit code; 2 for bad input, with one line on stderr."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return _refuse(_USAGE)
    folder = RunFolder(Path(arguments[0]))
    if not folder.path.is_dir():
        return _refuse(f"{folder.path} is not a folder. {_USAGE}")
    try:
        folder.spec()
        folder.launch()
    except FileNotFoundError as error:
        return _refuse(f"{error.filename} is missing: submit the run with python -m experiments submit")
    except SpecError as error:
        return _refuse(f"{folder.spec_path} cannot run: {error}")
    except (ValueError, TypeError) as error:
        return _refuse(f"{folder.launch_path} cannot be read: {error}")
    try:
        return supervise(folder, SubprocessGang(folder))
    except AlreadyStartedError as error:
        return _refuse(str(error))


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
