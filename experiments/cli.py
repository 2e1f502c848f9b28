"""`python -m experiments COMMAND`: the queue and the records from a terminal, a script or a batch system.

Exit codes: 0 when it did what was asked, 1 when a run failed or was stopped, 2 for bad input or when something that is
needed does not answer; then one line on stderr says what, and how to mend it. With `--json`, stdout holds exactly one
JSON document; a metric that is NaN or infinite is the text "NaN", "Infinity" or "-Infinity" there, since JSON has no
such numbers. What takes long to import is imported by the command that needs it.
"""

import argparse
import contextlib
import os
import sys
import typing
from collections.abc import Callable

from experiments.interruption import ends_by_signal
from experiments.locks import LockTimeout
from experiments.settings import Settings, SettingsError, bound_store_requests
from experiments.terminal import safe
from training.spec import SpecError

DONE, RUN_FAILED, REFUSED = 0, 1, 2


class UsageError(ValueError):
    """The command line asks for something that makes no sense. The message says what would."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; `--help` says the rest."""

    def error(self, message: str) -> typing.NoReturn:
        raise UsageError(f"{message}: see `{self.prog} --help`")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: the command line without the program; the process's own if None.

    Returns:
        The exit code.
    """
    try:
        options = _parser().parse_args(arguments)
    except UsageError as error:
        _complain(error)
        return REFUSED
    answer = sys.stdout
    try:
        # MLflow prints links and notes on stdout, which belongs to the command's answer.
        with contextlib.redirect_stdout(sys.stderr), ends_by_signal():
            return _run(options, answer)
    except BrokenPipeError:
        # Whoever read the answer has read enough (`list | head`); the flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answer.fileno())
        return DONE
    except KeyboardInterrupt:
        _complain("interrupted")
        return RUN_FAILED


def _run(options: argparse.Namespace, answer: typing.TextIO) -> int:
    bound_store_requests(retries=1, timeout_s=20)
    try:
        settings = Settings.from_environment().prepare()
        code = _command(options.command)(settings, options, answer)
        answer.flush()
        return code
    except (UsageError, SettingsError, SpecError, LockTimeout) as error:
        _complain(error)
    except BrokenPipeError:
        raise
    except Exception as error:
        from experiments.analysis.comparable import NotThereError
        from experiments.engines.base import EngineError
        from experiments.questions import UnknownGroupError
        from experiments.queue import UnknownRun
        from experiments.results import DamagedArtifactError
        from experiments.store_errors import is_of_this_machine, store_errors

        if isinstance(error, UnknownRun | UnknownGroupError | NotThereError | DamagedArtifactError | EngineError):
            _complain(error)
        elif isinstance(error, store_errors()) and is_of_this_machine(error):
            _complain(f"the data folder cannot be used ({_first_line(error)}): check SPEEDUP_LAB_HOME and its disk")
        elif isinstance(error, store_errors()):
            _complain(f"the tracking store does not answer ({_first_line(error)}): check MLFLOW_TRACKING_URI")
        else:
            raise
    return REFUSED


Command = Callable[[Settings, argparse.Namespace, typing.TextIO], int]


def _command(name: str) -> Command:
    from experiments.commands import COMMANDS

    if name in COMMANDS:
        return COMMANDS[name]
    if name == "plans":
        from experiments.plan_commands import plans

        return plans
    from experiments.analysis_commands import COMMANDS as ANALYSES

    return ANALYSES[name]


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m experiments",
        description="Trains, times and compares TensorFlow runs. Runs are named by their id or its first characters.",
        epilog="Exit codes: 0 done, 1 a run failed or was stopped, 2 bad input or something does not answer.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, says: str, *, of_a_run: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=says, description=says, allow_abbrev=False)
        made.add_argument("--json", action="store_true", help="one JSON document on stdout, and nothing else there")
        if of_a_run:
            made.add_argument("run", metavar="RUN", help="the run's id, or its first characters (six at least)")
        return made

    for name, says in (
        ("run", "Submits a run and waits for its end. Ctrl-C cancels it."),
        ("submit", "Submits a run and prints its id."),
    ):
        made = command(name, says)
        made.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            help="a field of the run, such as epochs=2 or dataset_options.examples=600; may be given again",
        )
        made.add_argument(
            "--spec", type=_given, metavar="FILE", help="a JSON object of fields, - for stdin; --set goes on top of it"
        )
        made.add_argument(
            "--submission",
            type=_given,
            default=None,
            metavar="TOKEN",
            help="the same token never starts a second run (for retries)",
        )
        made.add_argument(
            "--plan", type=_given, metavar="NAME", help="all runs of a ready-made experiment; --set goes on each"
        )
        made.add_argument("--repeats", type=_count, metavar="N", help="with --plan: how often each case is run")
        made.add_argument(
            "--group", type=_given, default=None, metavar="GROUP", help="with --plan: what its runs are called together"
        )
        if name == "run":
            made.add_argument(
                "--inline", action="store_true", help="here and now, without Ray, controller or tracking server"
            )
    command("plans", "Lists the ready-made experiments, with what each can measure here.")
    made = command("list", "Lists runs, newest first.")
    made.add_argument(
        "--limit", type=_count, metavar="N", help="the newest N runs; 0 for all (default: 50, with --json all)"
    )
    made.add_argument("--status", type=_status, metavar="STATUS", help="only those, such as RUNNING")
    command("show", "Shows a run's record.", of_a_run=True)
    made = command("log", "Shows the end of what a run's training process printed.", of_a_run=True)
    made.add_argument(
        "--worker", type=_count, default=0, metavar="I", help="which process of a multi-worker run, from 0"
    )
    made.add_argument("--last", type=_count, default=300, metavar="N", help="how many lines (default: 300)")
    made.add_argument("--follow", action="store_true", help="goes on until the run ends")
    command("cancel", "Stops a run, or takes it off the queue.", of_a_run=True)
    made = command("placement", "Counts a run's ops by device, and compares what was asked for.", of_a_run=True)
    made.add_argument("--ops", action="store_true", help="every op")
    made.add_argument("--against", type=_given, metavar="OTHER", help="what moved since that run, op by op with --ops")
    _analyses(command)
    command("doctor", "Says what this machine has, what is wrong, and how to mend it.")
    command("restore", "Brings the MLflow experiment back after it was deleted.")
    return parser


def _analyses(command: Callable[..., argparse.ArgumentParser]) -> None:
    """The commands that compare runs."""

    def comparing(name: str, says: str, *, grouped: bool = True) -> argparse.ArgumentParser:
        made = command(name, says)
        if grouped:
            made.add_argument(
                "--group", type=_given, default=None, metavar="GROUP", help="only among the runs of this group"
            )
        made.add_argument(
            "--put-back",
            action="append",
            default=[],
            type=_given,
            metavar="RUN",
            help="uses a run that was left out as doubtful; may be given again",
        )
        return made

    made = comparing("speedup", "Says what can be compared, and every configuration's speedup over a baseline.")
    made.add_argument(
        "--baseline", type=_given, metavar="RUN", help="a run of the configuration that the others are compared with"
    )
    made.add_argument("--by", type=_given, metavar="THING", help="what may differ: device, replicas, precision, ...")
    made.add_argument(
        "--rule", choices=("global", "replica"), help="which batch size stays the same when replicas are added"
    )
    made = comparing("scaling", "Lists scaling curves, and answers one: points, fits, what is worth using.")
    made.add_argument("--curve", type=_given, default=None, metavar="KEY", help="which curve, by its key in the list")
    made.add_argument(
        "--efficiency", type=_share, default=0.8, metavar="SHARE", help="what a device should give (default: 0.8)"
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--complete", action="store_true", help="the runs that are missing to draw the curve")
    which.add_argument("--halve", action="store_true", help="the repeats that are missing to halve its intervals")
    made.add_argument("--queue", action="store_true", help="submits the runs that are missing")
    made = comparing("compare", "Compares two runs, or says which field is in the way.", grouped=False)
    made.add_argument("baseline", metavar="RUN", help="the run to compare with")
    made.add_argument("candidate", metavar="RUN", help="the run that may be faster")
    made = comparing("report", "Writes one HTML file about a group, to be opened anywhere.", grouped=False)
    made.add_argument("group_name", type=_given, metavar="GROUP", help="the group of runs")
    made.add_argument("--output", type=_given, metavar="FILE", help="where to (default: speedup-lab-report.html here)")


def _given(text: str) -> str:
    """An empty text is most often a variable that a script forgot to set, and would mean that nothing was asked."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is empty: give a value, or leave the option out")
    return text


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0 and at most 1")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _status(text: str) -> str:
    from training.names import RunStatus

    if text.upper() not in list(RunStatus):
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(RunStatus)}")
    return text.upper()


def _complain(message: object) -> None:
    sys.stderr.write(f"python -m experiments: {safe(' '.join(str(message).split()))}\n")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
