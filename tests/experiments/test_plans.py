"""Ready-made experiments: what they can measure on which machines, and that the analyses can compare their runs."""

import itertools
import json
import math
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

from experiments import queue
from experiments.analysis import comparable, scaling, validity
from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.scaling_laws import Scaling
from experiments.analysis.tables import Speedups
from experiments.capacity import Capacity
from experiments.plan_runs import NotMeasured, Offer, claimed, default_group, expand, offer, submission
from experiments.plans import COMPARABLE, PlanError, find, load, plans
from experiments.settings import Settings
from tests.experiments.analysis.frames import history, steady
from tests.experiments.analysis.frames import runs as frame
from training import catalog
from training.spec import RunSpec, SpecError, problems
from training.spec_rules import Severity

TWO_CPUS = Capacity(2, 0, ((2, 0),), "this machine")
ONE_GPU = Capacity(8, 1, ((8, 1),), "this machine", (0,))
EIGHT_GPUS = Capacity(64, 8, ((64, 8),), "this machine", tuple(range(8)))
MACHINES = {"two CPUs": TWO_CPUS, "one GPU": ONE_GPU, "eight GPUs": EIGHT_GPUS}
RULES = {"strong_scaling": BatchRule.FIXED_GLOBAL}
GOOD = {
    "title": "What is faster?",
    "description": "Both.",
    "compares": ["device"],
    "base": {"dataset": "synthetic"},
    "cases": [{"device": ["cpu", "gpu"]}],
}

EVERYWHERE = pytest.mark.parametrize(
    ("name", "machine"), list(itertools.product(plans(), MACHINES)), ids=lambda value: value
)


def labels(offered: Offer) -> list[str]:
    return [case.label for case in offered.cases]


def rows(offered: Offer) -> pd.DataFrame:
    """The runs table as it would be after one repeat; a run's id is its case's label."""
    made = []
    for case in offered.cases:
        fields = {**case.spec.to_dict(), "run_id": case.label}
        fields["dataset_options"] = json.dumps(dict(case.spec.dataset_options))
        fields["jit_compile_resolved"] = str(case.spec.jit_compile).lower()
        fields["gpu_model"] = "A GPU" if case.spec.device == "gpu" else ""
        made.append(fields)
    return frame(*made)


# --- every plan on every machine ---------------------------------------------------------------------------------


@EVERYWHERE
def test_every_run_is_one_that_may_be_queued(name: str, machine: str) -> None:
    offered = offer(find(name), MACHINES[machine])
    runs = expand(offered, "a group")

    assert len(runs) == 5 * len(offered.cases) > 0
    assert [problem for run in runs for problem in problems(run) if problem.severity is Severity.ERROR] == []
    assert len({run.name for run in runs}) == len(runs)
    assert {(run.group, run.tags["plan"]) for run in runs} == {("a group", name)}


@EVERYWHERE
def test_every_case_has_a_steady_state_to_measure(name: str, machine: str) -> None:
    for case in offer(find(name), MACHINES[machine]).cases:
        spec = case.spec
        steps = catalog.steps_per_epoch(
            spec.dataset, spec.dataset_options, spec.global_batch_size, spec.max_steps_per_epoch
        )
        windows = spec.epochs * math.ceil(steps / spec.steps_per_execution)
        assert spec.epochs >= 3, case.label
        assert windows >= 30, case.label


@EVERYWHERE
def test_the_analyses_can_compare_what_a_plan_compares(name: str, machine: str) -> None:
    plan = find(name)
    offered = offer(plan, MACHINES[machine])
    table, rule = rows(offered), RULES.get(name, BatchRule.FIXED_PER_REPLICA)
    compared: set[str] = set()
    for first, second in itertools.combinations(offered.cases, 2):
        differ = [thing for thing in plan.compares if values(first.spec, thing) != values(second.spec, thing)]
        if len(differ) == 1:
            found = comparable.check(table, first.label, second.label, differ[0], rule)
            assert found.possible, found.sentence()
            compared |= {first.label, second.label}
    expected = set() if (name, machine) == ("cpu_against_gpu", "two CPUs") else set(labels(offered))
    assert compared == expected


def values(spec: RunSpec, thing: Thing) -> object:
    return getattr(spec, "global_batch_size" if thing is Thing.BATCH else thing.value)


@pytest.mark.parametrize(
    ("name", "kind", "axis", "batch"),
    [
        ("strong_scaling", Scaling.STRONG, "replicas", 1536),
        ("weak_scaling", Scaling.WEAK, "replicas", 256),
        ("workers", Scaling.WEAK, "workers", 128),
    ],
)
def test_scaling_plans_make_one_curve(name: str, kind: Scaling, axis: str, batch: int) -> None:
    offered = offer(find(name), EIGHT_GPUS)
    curve = scaling.curves(rows(offered))

    assert set(zip(curve["scaling"], curve["axis"], curve["batch"], strict=True)) == {(str(kind), axis, batch)}
    assert curve["curve"].nunique() == 1
    assert sorted(curve["run_id"]) == sorted(labels(offered))
    assert sorted(curve["count"])[:5] == [1, 2, 3, 4, 8]


def test_the_workers_curve_of_a_small_machine_compares_one_core_with_two() -> None:
    offered = offer(find("workers"), TWO_CPUS)

    assert labels(offered) == ["1 worker", "2 workers"]
    assert [(case.spec.strategy, case.spec.cpu_threads) for case in offered.cases] == [
        ("one_device", 1),
        ("multi_worker_mirrored", 1),
    ]
    assert sorted(scaling.curves(rows(offered))["count"]) == [1, 2]


@pytest.mark.parametrize("name", ["strong_scaling", "weak_scaling"])
@pytest.mark.parametrize("machine", ["two CPUs", "one GPU"])
def test_a_rehearsal_is_marked_and_stays_out_of_figures(name: str, machine: str) -> None:
    offered = offer(find(name), MACHINES[machine])
    table = rows(offered)
    flagged = validity.flags(table, steady(**dict.fromkeys(labels(offered), 100.0)), history())

    assert labels(offered) == ["1 replica", "2 replicas", "4 replicas"]
    assert offered.simulated
    assert "only a rehearsal" in offered.summary
    assert not validity.included(table, flagged).any()


def test_what_a_small_machine_cannot_measure_is_named() -> None:
    offered = offer(find("batch_size"), TWO_CPUS)

    assert labels(offered) == ["batch 8 CPU", "batch 32 CPU", "batch 128 CPU", "batch 512 CPU"]
    reason = "needs 1 GPU, this machine has 0"
    assert offered.not_measured == tuple(NotMeasured(f"batch {size} GPU", reason) for size in (8, 32, 128, 512, 2048))
    assert offered.summary == (
        "measures a part of it on this machine: batch 8 CPU, batch 32 CPU, batch 128 CPU, batch 512 CPU "
        "(batch 8 GPU, batch 32 GPU, batch 128 GPU, batch 512 GPU, batch 2048 GPU: needs 1 GPU, this machine has 0)"
    )


def test_without_a_gpu_precision_is_measured_on_the_cpu() -> None:
    offered = offer(find("precision"), TWO_CPUS)

    assert offered.summary == (
        "measures float32, mixed_bfloat16 on the CPU instead "
        "(float32, mixed_float16, mixed_bfloat16: needs 1 GPU, this machine has 0)"
    )


@pytest.mark.parametrize(
    ("plans", "baseline", "thing", "claim"),
    [
        (("cpu_against_gpu", "cpu_against_gpu"), "cpu", Thing.DEVICE, 10.0),
        (("cpu_against_gpu", "cpu_against_gpu"), "gpu", Thing.DEVICE, None),
        (("cpu_against_gpu", "cpu_against_gpu"), "cpu", Thing.VERSIONS, None),
        (("cpu_against_gpu", ""), "cpu", Thing.DEVICE, None),
        (("", ""), "cpu", Thing.DEVICE, None),
        (("precision", "precision"), "cpu", Thing.DEVICE, None),
        (("not there any more", "not there any more"), "cpu", Thing.DEVICE, None),
    ],
)
def test_a_claim_stands_beside_the_comparison_that_it_is_about(
    plans: tuple[str, str], baseline: str, thing: Thing, claim: float | None
) -> None:
    runs = frame(
        {"run_id": "cpu", "device": "cpu", "plan": plans[0]}, {"run_id": "gpu", "device": "gpu", "plan": plans[1]}
    )
    other = "gpu" if baseline == "cpu" else "cpu"
    table = pd.DataFrame({"run_ids": [(other,)]})
    found = Speedups("", (baseline,), 1.0, thing, BatchRule.FIXED_GLOBAL, table, pd.DataFrame(), "")

    assert claimed(found, runs) == claim


@pytest.mark.parametrize("other", [{"workload": "vae"}, {"global_batch_size": 512}, {"precision": "mixed_float16"}])
def test_a_claim_does_not_stand_beside_a_plan_that_was_run_with_other_fields(other: dict) -> None:
    runs = frame(
        {"run_id": "cpu", "device": "cpu", "plan": "cpu_against_gpu", **other},
        {"run_id": "gpu", "device": "gpu", "plan": "cpu_against_gpu", **other},
    )
    table = pd.DataFrame({"run_ids": [("gpu",)]})
    found = Speedups("", ("cpu",), 1.0, Thing.DEVICE, BatchRule.FIXED_GLOBAL, table, pd.DataFrame(), "")

    assert claimed(found, runs) is None


def test_the_guides_claim_stands_in_its_plan() -> None:
    plan = find("cpu_against_gpu")

    assert plan.claim == 10.0
    assert [labels(offer(plan, machine)) for machine in (TWO_CPUS, ONE_GPU)] == [["CPU"], ["CPU", "GPU"]]
    assert offer(plan, TWO_CPUS).not_measured == (NotMeasured("GPU", "needs 1 GPU, this machine has 0"),)


def test_replicas_are_counted_on_one_machine_of_a_cluster() -> None:
    cluster = Capacity(16, 6, ((8, 2), (8, 4)), "ray")

    assert labels(offer(find("strong_scaling"), cluster)) == ["1 replica", "2 replicas", "3 replicas", "4 replicas"]


# --- the runs of a launch ----------------------------------------------------------------------------------------


def test_each_repeat_holds_every_case_once_in_an_order_of_its_own() -> None:
    runs = expand(offer(find("batch_size"), EIGHT_GPUS), "g", repeats=6)
    blocks = [[run.name.rpartition(" #")[0] for run in runs[start : start + 9]] for start in range(0, len(runs), 9)]

    assert len(blocks) == 6
    assert {tuple(sorted(block)) for block in blocks} == {tuple(sorted(blocks[0]))}
    assert len({tuple(block) for block in blocks}) == 6
    assert [run.seed for run in runs] == [repeat for repeat in range(6) for _ in range(9)]
    assert [run.name.rpartition("#")[2] for run in runs] == [str(run.seed + 1) for run in runs]


def test_the_order_belongs_to_the_seed_and_the_group() -> None:
    def order(seed: int, group: str) -> list[str]:
        return [run.name for run in expand(offer(find("batch_size"), EIGHT_GPUS, {"seed": seed}), group)]

    assert order(0, "g") == order(0, "g")
    assert order(0, "g") != order(7, "g")
    assert order(0, "g") != order(0, "the next launch")
    assert expand(offer(find("workers"), TWO_CPUS, {"seed": 7}), "g", 1)[0].seed == 7


def test_overrides_go_on_top_of_every_case() -> None:
    overrides = {"dataset_options": {"validation_examples": 10}, "user": "ada", "name": "mine", "epochs": 2}
    offered = offer(find("workers"), EIGHT_GPUS, overrides)
    runs = expand(offered, "g", repeats=1)

    assert {run.epochs for run in runs} == {2}
    assert {run.user for run in runs} == {"ada"}
    assert {json.dumps(dict(run.dataset_options)) for run in runs} == {'{"examples": 65536, "validation_examples": 10}'}
    assert sorted(run.name for run in runs)[0] == "mine 1 worker #1"


def test_a_batch_set_by_hand_replaces_that_of_each_replica() -> None:
    offered = offer(find("workers"), TWO_CPUS, {"global_batch_size": 64})

    assert [case.spec.global_batch_size for case in offered.cases] == [64, 64]


def test_cases_that_an_override_makes_equal_are_one() -> None:
    offered = offer(find("batch_size"), EIGHT_GPUS, {"device": "cpu", "epochs": 3})

    assert labels(offered) == [f"batch {size} CPU" for size in (8, 32, 128, 512, 2048)]


def test_cases_that_an_override_makes_impossible_are_named() -> None:
    offered = offer(find("workers"), Capacity(4, 0, ((4, 0),), "this machine"), {"global_batch_size": 4})
    assert labels(offered) == ["1 worker", "2 workers", "4 workers"]
    (refused,) = offered.not_measured
    assert refused.label == "3 workers"
    assert "global_batch_size=4 does not divide by 3 replicas" in refused.reason

    nothing = offer(find("workers"), TWO_CPUS, {"dataset": "nosuch"})
    with pytest.raises(PlanError, match=r"can measure nothing on this machine .*dataset='nosuch' is unknown"):
        expand(nothing, "g")


def test_cases_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    # Their runs would have one name, and so one submission: the second would never be started.
    plan = written(tmp_path, {**GOOD, "cases": [{"device": "cpu"}, {"device": "cpu", "global_batch_size": 128}]})
    with pytest.raises(PlanError, match=r"several cases called 'CPU'.*equal in device"):
        offer(plan, TWO_CPUS)


@pytest.mark.parametrize("repeats", [0, -1, 101])
def test_repeats_that_make_no_sense_are_refused(repeats: int) -> None:
    with pytest.raises(PlanError, match=f"{repeats} repeats make no sense: give 1 to 100"):
        expand(offer(find("workers"), TWO_CPUS), "g", repeats)


def test_a_group_that_no_run_may_have_is_refused() -> None:
    with pytest.raises(SpecError, match=r"group=.*control characters"):
        expand(offer(find("workers"), TWO_CPUS), "a\nb")


def test_the_default_group_is_readable_and_not_taken(settings: Settings) -> None:
    plan, now = find("workers"), datetime(2026, 11, 30, 14, 12, 59)
    assert default_group(settings, plan, now=now) == "workers-2026-11-30-1412"
    for group in ("workers-2026-11-30-1412", "workers-2026-11-30-1412-2"):
        queue.submit(settings, RunSpec(dataset="synthetic", cpu_threads=1, group=group))

    assert default_group(settings, plan, now=now) == "workers-2026-11-30-1412-3"
    assert (
        default_group(settings, plan, token="a/b c") == default_group(settings, plan, token="a/b c") == "workers-a-b-c"
    )


def test_each_run_of_a_launch_has_a_token_of_its_own() -> None:
    runs = expand(offer(find("batch_size"), EIGHT_GPUS), "g")

    assert len({submission("t", run) for run in runs}) == len(runs)
    assert submission("t", runs[0]) != submission("u", runs[0])


# --- the files ---------------------------------------------------------------------------------------------------


def test_plans_are_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert list(plans()) == [
        "batch_size",
        "cpu_against_gpu",
        "precision",
        "steps_per_execution",
        "strong_scaling",
        "weak_scaling",
        "workers",
        "xla",
    ]
    assert all(plan.title.endswith("?") and plan.repeats == 5 for plan in plans().values())


@pytest.mark.parametrize(
    ("name", "words"), [("worker", "did you mean workers?"), ("zzz", "the plans are batch_size"), ("../x", "unknown")]
)
def test_an_unknown_plan_names_those_there_are(name: str, words: str) -> None:
    with pytest.raises(PlanError) as refusal:
        find(name)
    assert words in str(refusal.value)


def test_everything_that_can_be_compared_names_its_cases(tmp_path: Path) -> None:
    for thing in COMPARABLE:
        plan = written(tmp_path, {**GOOD, "compares": [thing], "cases": [{"dataset_options": {"examples": 640}}]})
        assert all(labels(offer(plan, TWO_CPUS)))


def written(folder: Path, document: object):
    path = folder / "mine.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return load(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tittle": "x"}, ["tittle is no key of a plan", "title"]),
        ({"title": " "}, ["title is no text"]),
        ({"description": 3}, ["description is no text"]),
        ({"compares": "device"}, ["compares is 'device'", "give a list of device"]),
        ({"compares": ["speed"]}, ["compares is ['speed']", "steps_per_execution"]),
        ({"compares": ["machine"]}, ["compares is ['machine']"]),
        ({"repeats": 0}, ["repeats is 0", "from 1 to 100"]),
        ({"repeats": True}, ["repeats is True"]),
        ({"claim": "ten"}, ["claim is 'ten'", "such as 10"]),
        ({"base": []}, ["base is []", "give a mapping"]),
        ({"base": {"epoch": 3}}, ["base.epoch is no field that a plan may give", "epochs"]),
        ({"base": {"group": "x"}}, ["base.group is no field"]),
        ({"base": {"epochs": "many"}}, ["base.epochs is 'many' and has the wrong type", "give a whole number"]),
        ({"base": {"epochs": 0}}, ["base.epochs is 0 and is too small", "give at least 1"]),
        ({"base": {"epochs": "1..cpus"}}, ["base.epochs is '1..cpus' and has the wrong type"]),
        ({"base": {"least_steps": 0}}, ["base.least_steps is 0", "from 1"]),
        ({"base": {"per_replica_batch_size": 8, "global_batch_size": 8}}, ["give one of the two"]),
        ({"cases": {}}, ["cases is {}", "give a list of cases"]),
        ({"cases": []}, ["cases is []"]),
        ({"cases": [{}, 3]}, ["cases[1] is 3", "give a mapping"]),
        ({"cases": [{"device": ["cpu", "tpu"]}]}, ["cases[0].device is 'tpu' and is unknown", "cpu, gpu"]),
        ({"cases": [{"replicas": []}]}, ["cases[0].replicas is an empty list"]),
        ({"cases": [{"replicas": "1..cpus"}]}, ["cases[0].replicas is '1..cpus'", "counted in gpus"]),
        ({"cases": [{"workers": "0..cpus"}]}, ["cases[0].workers is '0..cpus' and has the wrong type"]),
        ({"otherwise": [{"workers": "2"}]}, ["otherwise[0].workers is '2'"]),
    ],
)
def test_a_file_that_is_wrong_names_itself_the_key_and_the_remedy(
    tmp_path: Path, changes: dict, words: list[str]
) -> None:
    assert written(tmp_path, GOOD).title == "What is faster?"
    with pytest.raises(PlanError) as refusal:
        written(tmp_path, {**GOOD, **changes})
    for word in [str(tmp_path / "mine.yaml"), *words]:
        assert word in str(refusal.value)


@pytest.mark.parametrize("missing", list(GOOD))
def test_a_key_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    with pytest.raises(PlanError, match=f"{missing} is missing"):
        written(tmp_path, {key: value for key, value in GOOD.items() if key != missing})


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "a: !!python/object/apply:os.getcwd []", "\x00", "{a: 1}: 2"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"mine\.yaml"):
        load(path)


def test_a_file_name_that_cannot_be_typed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="file name is lower-case letters"):
        load(tmp_path / "My plan.yaml")
