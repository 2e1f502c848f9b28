"""The commands that compare runs: what they list, answer, refuse and queue."""

import dataclasses
import typing
from pathlib import Path

import pandas as pd
import pytest
from mlflow.entities import Metric as Point

from experiments import completing, queue, results
from experiments.analysis.comparable import Thing
from experiments.analysis.placement_surprises import surprises
from experiments.capacity import Capacity
from experiments.settings import Settings
from tests.dashboard.seed import add_run
from tests.experiments.analysis import frames
from tests.support.command_line import Run, refused
from tests.support.timed_runs import GPU, TAGS, repeats, timed_run
from training.names import Artifact, Metric, RunStatus, Tag
from training.spec import RunSpec

CPU_RUN = RunSpec(dataset="synthetic", cpu_threads=1, epochs=4, group="first", user="mei")
GPU_RUN = RunSpec(dataset="synthetic", cpu_threads=1, epochs=4, device="gpu", group="first", user="mei")


def workers(count: int, **more: typing.Any) -> RunSpec:
    """A run of so many workers with a fixed global batch."""
    strategy = "multi_worker_mirrored" if count > 1 else "one_device"
    fields = {"dataset": "synthetic", "cpu_threads": 1, "epochs": 4, "workers": count, "strategy": strategy, **more}
    return RunSpec(**fields)


@pytest.fixture
def ten_times(settings: Settings) -> dict[str, list[str]]:
    """Three CPU runs, and three GPU runs ten times as fast."""
    return {"cpu": repeats(settings, CPU_RUN, 1000), "gpu": repeats(settings, GPU_RUN, 10_000, GPU)}


@pytest.fixture
def two_workers(settings: Settings) -> dict[int, list[str]]:
    """A curve of one and two workers, three runs each."""
    return {count: repeats(settings, workers(count, name=f"w{count}"), 1000 * 0.9**count * count) for count in (1, 2)}


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are for a machine of four cores."""
    machine = Capacity(cpus=4, gpus=0, nodes=((4, 0),), source="this machine")
    monkeypatch.setattr("experiments.capacity.this_machine", lambda: machine)
    monkeypatch.setattr("experiments.capacity._known", {})


# --- speedup -----------------------------------------------------------------------------------------------------


def test_the_only_comparison_is_answered(cli_run: Run, ten_times: dict[str, list[str]]) -> None:
    found = cli_run("speedup", "--json").json
    assert [(each["thing"], each["configurations"], each["runs"]) for each in found["suggestions"]] == [
        ("device", 2, 6)
    ]
    answer = found["speedup"]
    assert (answer["by"], answer["baseline"], answer["left_out"]) == ("device", "CPU", [])
    assert sorted(answer["baseline_run_ids"]) == sorted(ten_times["cpu"])
    (row,) = answer["table"]
    assert sorted(row["run_ids"]) == sorted(ten_times["gpu"])
    assert row["ratio"] == pytest.approx(10.0, rel=1e-6)
    assert row["called"] == "faster"
    assert answer["title"].startswith("GPU is 10.00x (9.7")
    text = cli_run("speedup").out
    assert text.startswith(answer["title"] + "\n")
    assert "baseline  CPU (3 runs, 1,000 examples/s)" in text
    assert "spread between runs" in text
    assert (row["break_even"], row["break_even_low"], row["break_even_high"]) == ("ahead from the start", 0.0, 0.0)
    assert "ahead from the start" in text


def test_several_comparisons_are_listed_and_one_is_chosen(
    cli_run: Run, settings: Settings, ten_times: dict[str, list[str]]
) -> None:
    half = timed_run(settings, RunSpec(**(vars(GPU_RUN) | {"precision": "mixed_float16"})), 20_000, tags=GPU)
    listed = cli_run("speedup", "--json").json
    assert ([each["thing"] for each in listed["suggestions"]], listed["speedup"]) == (["precision", "device"], None)
    plain = cli_run("speedup")
    assert plain.out.splitlines()[0].split() == ["BY", "RULE", "BASELINE", "CONFIGURATIONS", "RUNS", "WHAT"]
    assert "choose one with --baseline" in plain.err
    chosen = cli_run("speedup", "--by", "Precision", "--json").json["speedup"]
    assert [row["run_ids"] for row in chosen["table"]] == [[half]]
    assert chosen["table"][0]["called"] == "faster"
    by_baseline = cli_run("speedup", "--baseline", ten_times["cpu"][0][:8], "--json").json["speedup"]
    assert by_baseline["by"] == "device"


def test_a_baseline_that_nothing_matches_is_told_which_field_is_in_the_way(
    cli_run: Run, settings: Settings, ten_times: dict[str, list[str]]
) -> None:
    half = timed_run(settings, RunSpec(**(vars(GPU_RUN) | {"precision": "mixed_float16"})), 20_000, tags=GPU)
    in_full = cli_run("speedup", "--baseline", half, "--by", "device", "--json").json
    assert (in_full["speedup"]["table"], in_full["speedup"]["title"]) == (
        [],
        "Nothing to compare with the baseline yet",
    )
    cpu = ten_times["cpu"][-1]
    assert in_full["nearest"][0] == {"run_id": cpu, "in_the_way": ["precision: mixed_float16 / float32"]}
    text = cli_run("speedup", "--baseline", half, "--by", "device").out
    assert f"nearest  {cpu[:8]}  cannot be compared: precision: mixed_float16 / float32" in text
    alone = timed_run(settings, RunSpec(**(vars(CPU_RUN) | {"steps_per_execution": 5, "deterministic": True})), 900)
    said = cli_run("speedup", "--baseline", alone)
    assert "nothing can be compared yet" in said.err
    assert f"nearest  {cpu[:8]}  cannot be compared: deterministic: on / off" in said.out


def test_what_can_be_compared_without_an_option_is_said(cli_run: Run, settings: Settings) -> None:
    for batch in (64, 128):
        timed_run(settings, RunSpec(**(vars(CPU_RUN) | {"global_batch_size": batch})), 1000)
    assert cli_run("speedup", "--by", "device").err == "nothing by device; without --by: batch size\n"
    both = cli_run("speedup", "--by", "replicas", "--rule", "replica").err
    assert both == "nothing by replicas with --rule replica; without --by and --rule: batch size\n"


def test_a_rule_that_nothing_follows_is_said(cli_run: Run, two_workers: dict[int, list[str]]) -> None:
    assert cli_run("speedup", "--rule", "replica").err == "nothing with --rule replica; without --rule: workers\n"


def test_doubtful_runs_are_said_and_put_back(cli_run: Run, settings: Settings, ten_times: dict[str, list[str]]) -> None:
    stopped = timed_run(settings, GPU_RUN, 5_000, RunStatus.KILLED, GPU)
    answer = cli_run("speedup", "--json").json["speedup"]
    assert [(row["run_id"], row["flag"], row["can_be_put_back"]) for row in answer["left_out"]] == [
        (stopped, "unfinished", True)
    ]
    assert stopped not in answer["table"][0]["run_ids"]
    assert f"{stopped[:8]}" in cli_run("speedup").out
    back = cli_run("speedup", "--put-back", stopped[:10], "--json").json["speedup"]
    assert stopped in back["table"][0]["run_ids"]
    assert back["left_out"] == []


def test_a_group_stays_among_itself(cli_run: Run, settings: Settings, ten_times: dict[str, list[str]]) -> None:
    other = timed_run(settings, RunSpec(**(vars(CPU_RUN) | {"group": "\x1b[31msecond"})), 1000)
    assert cli_run("speedup", "--group", "first", "--json").json["suggestions"][0]["runs"] == 6
    nothing = cli_run("speedup", "--group", "\x1b[31msecond", "--json").json
    assert nothing == {"suggestions": [], "speedup": None, "batch_curve": None, "nearest": []}
    refused(cli_run("speedup", "--group", "first", "--baseline", other), "--baseline", "leave out --group")


def test_an_empty_store_says_what_it_takes(cli_run: Run) -> None:
    assert cli_run("speedup", "--json").json == {"suggestions": [], "speedup": None, "batch_curve": None, "nearest": []}
    assert "differ in one thing" in cli_run("speedup").err
    assert cli_run("scaling", "--json").json == {"curves": [], "curve": None}
    assert "two numbers of replicas" in cli_run("scaling").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("speedup", "--by", "colour"), ("--by 'colour'", "device", "precision")),
        (("speedup", "--rule", "both"), ("--rule", "global")),
        (("speedup", "--baseline", "ffffff"), ("'ffffff'", "is unknown")),
        (("speedup", "--put-back", "../x"), ("'../x'", "is unknown")),
        (("speedup", "--group", "no\x1b[2Jbody"), ("has no run", "list --json")),
        (("scaling", "--efficiency", "2"), ("--efficiency", "at most 1")),
        (("scaling", "--efficiency", "nan"), ("--efficiency", "at most 1")),
        (("scaling", "--curve", "nothing"), ("'nothing'", "lists the curves")),
        (("scaling", "--queue"), ("--queue", "--complete or --halve")),
        (("scaling", "--complete"), ("there are 0", "--curve KEY")),
        (("scaling", "--complete", "--halve"), ("--halve", "not allowed")),
        (("compare", "ffffff", "eeeeee"), ("'ffffff'", "is unknown")),
        (("report", "nobody"), ("'nobody'", "has no run")),
        (("report",), ("GROUP",)),
    ],
)
def test_bad_input_is_one_line(
    cli_run: Run, ten_times: dict[str, list[str]], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    answer = cli_run(*arguments)
    refused(answer, *words)
    assert "\x1b" not in answer.err


def test_a_report_into_a_folder_is_refused_before_it_is_drawn(cli_run: Run, settings: Settings, tmp_path: Path) -> None:
    queue.submit(settings, RunSpec(dataset="synthetic", group="mine"))
    refused(cli_run("report", "mine", "--output", str(tmp_path)), "--output", "is a folder: name a file in it")


def test_a_damaged_placement_leaves_the_rest_of_a_comparison(
    cli_run: Run, settings: Settings, ten_times: dict[str, list[str]], tmp_path: Path
) -> None:
    baseline, candidate = ten_times["cpu"][0], ten_times["gpu"][0]
    file = tmp_path / Path(Artifact.PLACEMENT_TABLE).name
    file.write_bytes(b"garbage")
    settings.client().log_artifact(candidate, str(file), Artifact.PLACEMENT_DIR)
    answer = cli_run("compare", baseline, candidate)
    assert answer.code == 0, answer.err
    assert "by device" in " ".join(answer.out.split())
    assert f"{Artifact.PLACEMENT_TABLE} of run {candidate} cannot be read" in answer.err
    refused(cli_run("placement", candidate), candidate, "cannot be read", "run it again")


# --- scaling -----------------------------------------------------------------------------------------------------


def test_the_only_curve_is_answered_in_full(cli_run: Run, two_workers: dict[int, list[str]]) -> None:
    found = cli_run("scaling", "--json").json
    assert [(each["runs"], each["counts"]) for each in found["curves"]] == [(6, "1, 2")]
    curve = found["curve"]
    assert curve["key"] == found["curves"][0]["key"]
    assert [(point["count"], point["runs"]) for point in curve["points"]] == [(1, 3), (2, 3)]
    assert curve["points"][1]["speedup"] == pytest.approx(1.8, rel=1e-6)
    assert curve["points"][0]["speedup_low"] == "NaN"
    assert "2 numbers of devices were measured, 3 are needed" in curve["refusal"]
    assert not any(row["predicted"] for row in curve["predictions"])
    assert (curve["worth_using"]["count"], curve["worth_using"]["at_limit"]) == (2, True)
    assert "missing" not in curve
    text = cli_run("scaling").out
    assert text.startswith("2 workers train 1.80x (")
    assert "Amdahl's law" in text
    assert "AFIPS" in text
    assert "nothing is predicted beyond the measured points: 2 numbers" in text
    assert "worth using: at least 2 workers work at 80% efficiency" in text
    strict = cli_run("scaling", "--efficiency", "0.95", "--curve", curve["key"], "--json").json["curve"]
    assert (strict["worth_using"]["count"], strict["efficiency"]) == (1, 0.95)


@pytest.mark.usefixtures("four_cores")
def test_completing_lists_exactly_what_is_missing_and_queues_it_once(
    cli_run: Run, settings: Settings, two_workers: dict[int, list[str]]
) -> None:
    found = cli_run("scaling", "--complete", "--json").json
    rows = {row["count"]: row for row in found["missing"]}
    assert {count: row["repeats"] for count, row in rows.items()} == {3: 3, 4: 3}
    assert rows[3]["refusal"] == "a global batch of 64 does not divide by 3 replicas"
    assert (rows[4]["refusal"], found["queued"]) == ("", [])
    assert len(results.Results(settings).runs()) == 6
    queued = cli_run("scaling", "--complete", "--queue", "--json").json["queued"]
    assert len(queued) == 3
    specs = [results.spec(settings, run_id) for run_id in queued]
    assert {(spec.workers, spec.strategy, spec.global_batch_size) for spec in specs} == {
        (4, "multi_worker_mirrored", 64)
    }
    assert {spec.name for spec in specs} == {""}
    # Of one group, so that they are carried out one at a time and do not disturb each other.
    assert {spec.group for spec in specs} == {f"complete {found['curve']['key']}"}
    assert {queue.get_run(settings, run_id).info.status for run_id in queued} == {"SCHEDULED"}
    again = cli_run("scaling", "--complete", "--queue", "--json").json
    assert ([row["count"] for row in again["missing"]], again["queued"]) == ([3], [])
    text = cli_run("scaling", "--complete").out
    assert "does not divide by 3" in text


@pytest.mark.usefixtures("four_cores")
def test_halving_asks_for_repeats(cli_run: Run, two_workers: dict[int, list[str]]) -> None:
    found = cli_run("scaling", "--halve", "--json").json
    assert [(row["count"], row["repeats"]) for row in found["missing"]] == [(1, 5), (2, 5)]


@pytest.mark.usefixtures("four_cores")
def test_what_the_machine_refuses_is_said_and_not_queued(
    cli_run: Run, settings: Settings, two_workers: dict[int, list[str]]
) -> None:
    for count in (1, 2):
        repeats(settings, workers(count, dataset="mnist", group="set is not here"), 1000 * count, count=1)
    found = cli_run("scaling", "--group", "set is not here", "--complete", "--queue", "--json").json
    assert found["queued"] == []
    assert all(row["refusal"] for row in found["missing"])
    listed = cli_run("scaling")
    assert "choose one with --curve" in listed.err
    assert len(listed.out.splitlines()) == 3
    refused(cli_run("scaling", "--complete"), "there are 2")


@pytest.mark.parametrize(
    ("run", "most"),
    [
        ({"cpu_threads": 2}, 4),
        ({"cpu_threads": pd.NA}, 8),
        ({"device": "gpu"}, 3),
        ({"replicas": 2, "logical_devices": 2}, 2),
        ({"workers": 16}, 16),
    ],
)
def test_the_most_devices_there_are(run: dict, most: int) -> None:
    machines = Capacity(cpus=8, gpus=3, nodes=((8, 3),), source="this machine")
    assert completing.most_devices(frames.runs({"run_id": "a", **run}), machines) == most


def test_workers_with_several_gpus_each_are_counted_as_workers() -> None:
    machines = Capacity(8, 8, ((8, 8),), "ray")
    run = {"run_id": "a", "device": "gpu", "strategy": "multi_worker_mirrored", "workers": 2, "replicas": 2}
    assert completing.most_devices(frames.runs(run), machines, Thing.WORKERS) == 4
    assert completing.most_devices(frames.runs(run), machines) == 8


# --- two runs ----------------------------------------------------------------------------------------------------


def test_two_runs_compare_with_their_repeats(cli_run: Run, ten_times: dict[str, list[str]]) -> None:
    pair = ten_times["cpu"][0], ten_times["gpu"][2]
    found = cli_run("compare", *pair, "--json").json
    assert (found["possible"], found["by"], found["in_the_way"]) == (True, "device", [])
    assert found["speedup"]["table"][0]["runs"] == 3
    assert found["speedup"]["table"][0]["ratio"] == pytest.approx(10.0, rel=1e-6)
    assert found["verdicts"][pair[0]]["cause"] == "waiting for input"
    assert found["verdicts"][pair[0]]["share"] == pytest.approx(0.3)
    assert found["placement"] is None
    back = cli_run("compare", pair[1], pair[0]).out
    assert back.startswith("compared by device: GPU / CPU")
    assert "waiting for input: 30% of training time" in back
    refused(cli_run("compare", pair[0], pair[0][:8]), "the same run", "another")


def test_versions_of_the_product_that_differ_are_said(cli_run: Run, settings: Settings) -> None:
    pair = [
        timed_run(settings, spec, 1000, tags={**tags, Tag.GIT_COMMIT: commit * 40})
        for spec, tags, commit in ((CPU_RUN, TAGS, "a"), (GPU_RUN, GPU, "b"))
    ]
    said = "different versions of Speedup Lab: aaaaaaaaa / bbbbbbbbb"
    assert f"to know   {said}\n" in cli_run("compare", *pair).out
    assert f"to know   {said}\n" in cli_run("speedup").out
    assert cli_run("compare", *pair, "--json").json["notes"] == [said]
    assert cli_run("speedup", "--json").json["speedup"]["notes"] == [said]


def test_what_is_in_the_way_of_a_comparison_is_said(
    cli_run: Run, settings: Settings, ten_times: dict[str, list[str]]
) -> None:
    half = timed_run(settings, RunSpec(**(vars(GPU_RUN) | {"precision": "mixed_float16"})), 20_000, tags=GPU)
    answer = cli_run("compare", ten_times["cpu"][0], half, "--json")
    assert answer.code == 0
    assert (answer.json["possible"], answer.json["by"], answer.json["speedup"]) == (False, None, None)
    assert answer.json["in_the_way"] == ["precision: float32 / mixed_float16"]
    text = cli_run("compare", ten_times["cpu"][0], half).out
    assert text.startswith("cannot be compared: precision: float32 / mixed_float16\n")


def test_what_moved_between_two_runs(cli_run: Run, settings: Settings) -> None:
    tables = [
        frames.placement(
            ("seq/dense/MatMul", "MatMul", device, "compute", "dense"), ("x/Add", "AddV2", "CPU:0", "compute", "")
        )
        for device in ("CPU:0", "GPU:0")
    ]
    first = timed_run(settings, CPU_RUN, 1000, tags=TAGS, placement=tables[0])
    second = timed_run(settings, GPU_RUN, 1000, tags=GPU, placement=tables[1])
    moved = {"change": "moved", "from": "CPU:0", "to": "GPU:0", "ops": 1}
    same = {"change": "same", "from": "CPU:0", "to": "CPU:0", "ops": 1}
    found = cli_run("placement", second, "--against", first[:9], "--json").json
    assert found == {"run_id": second, "against": first, "moves": [moved, same]}
    ops = cli_run("placement", second, "--against", first, "--ops", "--json").json["ops"]
    assert [(op["name"], op["change"]) for op in ops] == [("dense/MatMul", "moved"), ("x/Add", "same")]
    assert "dense/MatMul" in cli_run("placement", second, "--against", first, "--ops").out
    assert cli_run("compare", first, second, "--json").json["placement"] == [moved, same]
    bare = timed_run(settings, CPU_RUN, 1000)
    answer = cli_run("placement", second, "--against", bare)
    assert (answer.code, answer.out) == (0, "")
    assert f"no placement is recorded for {bare}" in answer.err


def test_placement_names_the_surprises_of_the_page(cli_run: Run, settings: Settings) -> None:
    table = frames.placement(
        ("seq/conv2d/convolution", "Conv2D", "GPU:0", "compute", "conv2d"),
        ("seq/dense/MatMul", "MatMul", "CPU:0", "compute", "dense"),
    )
    by_hand = dataclasses.replace(GPU_RUN, manual_placement={"dense": "/CPU:0"})
    run_id, asked = (timed_run(settings, spec, 1000, tags=GPU, placement=table) for spec in (GPU_RUN, by_hand))

    found = cli_run("placement", run_id, "--json").json["surprises"]

    assert found == surprises(table, "gpu", {}).to_dict("records")
    assert [(op["name"], op["layer"], op["why"]) for op in found] == [("seq/dense/MatMul", "dense", "whole layer")]
    text = cli_run("placement", run_id).out
    assert "surprises, on the CPU in a GPU run: 1" in text
    assert "seq/dense/MatMul" in text
    assert cli_run("placement", asked, "--json").json["surprises"] == []
    assert "in a GPU run: 0" in cli_run("placement", asked).out


def test_a_verdict_rests_on_references_whose_timing_is_not_doubtful(cli_run: Run, settings: Settings) -> None:
    single = workers(1, global_batch_size=64)
    for rate, tags in ((1000, TAGS), (3000, {**TAGS, Tag.PROFILER: "true"})):
        timed_run(settings, single, rate, tags=tags)
    timed_run(settings, single, 5000, RunStatus.FAILED)
    run_id = timed_run(settings, workers(2, global_batch_size=128), 1000)

    said = cli_run("show", run_id, "--json").json["verdict"]

    assert said["cause"] == "synchronising"
    assert said["share"] == pytest.approx(0.5)
    assert "against 1 run" in said["sentence"]


def test_show_tells_the_verdict_and_the_flags(cli_run: Run, settings: Settings) -> None:
    run_id = timed_run(settings, CPU_RUN, 1000, RunStatus.FAILED)
    record = cli_run("show", run_id, "--json").json
    assert record["verdict"]["cause"] == "waiting for input"
    assert record["verdict"]["sentence"].startswith("waiting for input: 30% of training time")
    assert [(flag["flag"], flag["excludes"]) for flag in record["flags"]] == [("unfinished", True)]
    text = cli_run("show", run_id).out
    assert "verdict  waiting for input: 30%" in text
    assert "(the run was cut short: FAILED)\n" in text
    assert record["verdict"]["sentence"].endswith("(the run was cut short: FAILED)")
    assert "flag     status FAILED: did not finish (stays out of figures)" in text
    assert Metric.OTHERS_CPU in " ".join(record["unchecked"])
    assert "unknown  profiler on (profiler): not recorded, so not checked\n" in text


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.KILLED, RunStatus.FAILED])
def test_a_run_that_goes_on_or_ended_too_early_has_no_verdict(
    cli_run: Run, settings: Settings, status: RunStatus
) -> None:
    points = [Point(Metric.TIME_EPOCH_TRAIN, 10.0, 0, 0), Point(Metric.TIME_INPUT_WAIT, 6.0, 0, 0)]
    run_id = add_run(settings, CPU_RUN, status, points=points)
    assert cli_run("show", run_id, "--json").json["verdict"] is None
    assert "verdict" not in cli_run("show", run_id).out
    if status == RunStatus.RUNNING:
        long_one = timed_run(settings, CPU_RUN, 1000, status)
        assert cli_run("show", long_one, "--json").json["verdict"] is None


def test_a_run_that_someone_else_logged_is_shown_without_what_it_lacks(cli_run: Run, settings: Settings) -> None:
    client = settings.client()
    run_id = client.create_run(settings.experiment_id()).info.run_id
    client.set_terminated(run_id, RunStatus.FINISHED)
    record = cli_run("show", run_id, "--json").json
    assert record["verdict"]["cause"] == "not known"
    assert [flag["flag"] for flag in record["flags"]] == ["no_steady_state"]
