"""Ready-made experiments from the command line: listed, queued, carried out one after the other, interrupted."""

import itertools
import json
import os
import signal
import socket
from collections.abc import Callable

import pytest

from experiments import queue, waiting
from experiments.plans import plans
from experiments.settings import Settings
from tests.experiments.test_foreground import FINISHES
from tests.support.command_line import Run, refused
from training.names import RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec

# One core and no GPU are everywhere: two cases that any machine can carry out.
SMALL = ("--plan", "xla", "--repeats", "2", "--set", "device=cpu", "--set", "cpu_threads=1", "--set", "epochs=2")
NAMES = ["XLA off #1", "XLA off #2", "XLA on #1", "XLA on #2"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of these tests has no GPU, whatever this one has."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def stored(settings: Settings) -> list:
    """MLflow's runs, oldest first."""
    return settings.client().search_runs([settings.experiment_id()], order_by=["attributes.start_time ASC"])


def drive(settings: Settings) -> None:
    """Lets this process pass for a controller."""
    (settings.locks_folder / "controller.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")


def test_plans_are_listed_with_what_they_can_measure_here(cli_run: Run) -> None:
    text = cli_run("plans")
    assert text.code == 0
    assert "cpu_against_gpu\n  How much faster does a GPU" in text.out
    assert "GPU: needs 1 GPU, this machine has 0" in text.out
    assert "5 runs: python -m experiments run --plan cpu_against_gpu" in text.out

    found = {each["name"]: each for each in cli_run("plans", "--json").json}
    assert list(found) == list(plans())
    guide = found["cpu_against_gpu"]
    assert (guide["claim"], guide["compares"], guide["simulated"]) == (10.0, ["device"], False)
    assert [case["case"] for case in guide["cases"]] == ["CPU"]
    assert RunSpec.from_dict(guide["cases"][0]["spec"]).global_batch_size == 64
    assert guide["not_measured"] == [{"case": "GPU", "reason": "needs 1 GPU, this machine has 0"}]
    assert found["strong_scaling"]["simulated"]


def test_submit_queues_every_run_in_one_group(cli_run: Run, settings: Settings) -> None:
    answer = cli_run("submit", *SMALL, "--group", "<b>mine</b>", "--json")
    assert answer.code == 0, answer.err
    found = answer.json
    assert (found["group"], [each["status"] for each in found["runs"]]) == ("<b>mine</b>", ["SCHEDULED"] * 4)
    assert sorted(each["name"] for each in found["runs"]) == NAMES
    runs = {run.info.run_id: run.data for run in stored(settings)}
    assert set(runs) == {each["run_id"] for each in found["runs"]}
    assert {data.tags[Tag.GROUP] for data in runs.values()} == {"<b>mine</b>"}
    assert {data.params["epochs"] for data in runs.values()} == {"2"}
    assert "What does compiling" in answer.err
    assert "2 cases, 4 runs, in random order" in answer.err


def test_submit_prints_ids_and_makes_up_a_group(cli_run: Run, settings: Settings) -> None:
    answer = cli_run("submit", *SMALL)
    runs = {run.info.run_id: run for run in stored(settings)}
    assert set(answer.out.split()) == set(runs)
    (group,) = {run.data.tags[Tag.GROUP] for run in runs.values()}
    assert group.startswith("xla-20")
    assert f"group {group}: " in answer.err


def test_a_launch_that_is_repeated_with_its_token_starts_nothing(cli_run: Run, settings: Settings) -> None:
    first = cli_run("submit", *SMALL, "--submission", "nightly", "--json").json
    assert first["group"] == "xla-nightly"
    assert cli_run("submit", *SMALL, "--submission", "nightly", "--json").json == first
    assert len(stored(settings)) == 4


def test_a_launch_that_broke_off_is_completed_by_the_command_it_names(
    cli_run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = RunFolder.write_spec, []

    def write_spec(folder: RunFolder, spec: RunSpec) -> None:
        calls.append(spec.name)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        real(folder, spec)

    monkeypatch.setattr(RunFolder, "write_spec", write_spec)
    broken = cli_run("submit", *SMALL, "--group", "g", "--submission", "t")
    assert broken.code == 1
    assert "3 of 4 runs are queued" in broken.err
    assert "--group 'g' --submission t" in broken.err
    assert len(stored(settings)) == 3

    assert cli_run("submit", *SMALL, "--group", "g", "--submission", "t").code == 0
    assert sorted(run.info.run_name for run in stored(settings)) == NAMES


def test_run_inline_carries_out_one_after_the_other(
    cli_run: Run, settings: Settings, supervisor: Callable[[str], None]
) -> None:
    supervisor(FINISHES)
    answer = cli_run("run", "--inline", *SMALL, "--json")
    assert answer.code == 0, answer.err
    assert list(answer.json) == ["group", "runs", "not_measured"]
    assert sorted(record["name"] for record in answer.json["runs"]) == NAMES
    assert {record["status"] for record in answer.json["runs"]} == {"FINISHED"}
    times = [(run.info.start_time, run.info.end_time) for run in stored(settings)]
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))
    assert [record["run_id"] for record in answer.json["runs"]] == [run.info.run_id for run in stored(settings)]
    assert [each["case"] for each in answer.json["not_measured"]] == []


def test_run_prints_each_record(cli_run: Run, supervisor: Callable[[str], None]) -> None:
    supervisor(FINISHES)
    out = cli_run("run", "--inline", *SMALL, "--group", "mine").out
    assert out.startswith("group    mine\n")
    assert [line for line in out.splitlines() if line.startswith("status")] == ["status   FINISHED"] * 4


def test_one_run_that_fails_is_exit_code_1(cli_run: Run, supervisor: Callable[[str], None]) -> None:
    supervisor(FINISHES.replace("RunStatus.FINISHED", "RunStatus.FAILED if folder.spec().jit_compile else 'FINISHED'"))
    answer = cli_run("run", "--inline", *SMALL, "--json")
    assert answer.code == 1
    assert sorted((record["name"], record["status"]) for record in answer.json["runs"]) == [
        (name, "FAILED" if "on" in name else "FINISHED") for name in NAMES
    ]


def test_interrupting_inline_runs_ends_one_and_starts_no_other(
    cli_run: Run, settings: Settings, supervisor: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor("import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)")
    answer = cli_run("run", "--inline", *SMALL, "--json")
    assert answer.code == 1
    assert [record["status"] for record in answer.json["runs"]] == ["KILLED"]
    assert len(stored(settings)) == 1
    assert "3 more were not started" in answer.err


def test_run_waits_for_all(cli_run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(cli_run("run", *SMALL), "no controller", "--inline")
    drive(settings)
    waited: list[waiting.Watcher] = []

    def until_the_end(watcher: waiting.Watcher) -> RunStatus:
        if not waited:
            assert len(stored(settings)) == 4  # all are queued before the first is waited for
        waited.append(watcher)
        return RunStatus.FINISHED

    monkeypatch.setattr(waiting.Watcher, "until_the_end", until_the_end)
    answer = cli_run("run", *SMALL, "--json")
    assert (answer.code, len(answer.json["runs"]), len(waited)) == (0, 4, 4)


def test_interrupting_cancels_what_is_not_done(
    cli_run: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(settings)

    def interrupt(watcher: waiting.Watcher) -> RunStatus:
        settings.client().set_terminated(stored(settings)[0].info.run_id, RunStatus.FINISHED)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting.Watcher, "until_the_end", interrupt)
    answer = cli_run("run", *SMALL, "--json")
    assert answer.code == 1
    assert sorted(record["status"] for record in answer.json["runs"]) == ["FINISHED", "KILLED", "KILLED", "KILLED"]
    assert "cancelling the runs that are not done" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--plan", "xlaa"), ("plan 'xlaa' is unknown", "did you mean xla?")),
        (("--plan", "\x1b[2J"), ("is unknown", "the plans are")),
        (("--plan", "xla", "--repeats", "0"), ("0 repeats make no sense", "give 1 to 100")),
        (("--plan", "xla", "--repeats", "many"), ("--repeats", "no whole number")),
        (("--plan", "xla", "--set", "epoch=3"), ("epoch", "did you mean epochs")),
        (("--plan", "xla", "--set", "epochs=0"), ("can measure nothing on this machine", "epochs=0 is too small")),
        (("--plan", "xla", "--group", "a\nb"), ("group=", "control characters")),
        (("--plan", "xla", "--spec", "-"), ("--spec", "leave out one")),
        (("--repeats", "3"), ("--repeats", "--plan NAME")),
        (("--group", "g"), ("--group", "--plan NAME")),
    ],
)
def test_bad_input_is_one_line_and_queues_nothing(
    cli_run: Run, settings: Settings, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    for command in (("submit",), ("run", "--inline")):
        answer = cli_run(*command, *arguments)
        refused(answer, *words)
        assert "\x1b" not in answer.err
    assert stored(settings) == []


def test_what_cannot_be_measured_is_said_with_the_answer(cli_run: Run, settings: Settings) -> None:
    answer = cli_run("submit", "--plan", "cpu_against_gpu", "--repeats", "1", "--json")
    assert answer.json["not_measured"] == [{"case": "GPU", "reason": "needs 1 GPU, this machine has 0"}]
    assert "GPU: needs 1 GPU, this machine has 0" in answer.err
    (run,) = stored(settings)
    assert json.loads(queue.params(RunSpec(tags={"plan": "cpu_against_gpu"}))["tags"]) == {
        "plan": run.data.tags["tag.plan"]
    }


def test_a_warning_that_many_runs_share_is_said_once(cli_run: Run) -> None:
    answer = cli_run("submit", "--plan", "strong_scaling", "--repeats", "2")
    assert answer.err.count("warning: logical_devices=4 simulates devices") == 1
    assert "only a rehearsal on this machine" in answer.err
