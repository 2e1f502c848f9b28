"""Like with like: what may differ, what is in the way, and which baselines match."""

import pytest

from experiments.analysis.baselines import baselines, naturalness
from experiments.analysis.comparable import FIELDS, BatchRule, Thing, cells, check, fields
from experiments.analysis.field_words import term
from experiments.analysis.tables import suggestions
from tests.experiments.analysis import frames

GPU = {"device": "gpu", "gpu_model": "A GPU", "cpu_threads": None}


def test_case_a1_xla_resolved_otherwise_is_in_the_way():
    runs = frames.runs({"run_id": "cpu"}, {"run_id": "gpu", **GPU, "jit_compile_resolved": "true"})
    found = check(runs, "cpu", "gpu", Thing.DEVICE)
    assert not found.possible
    assert found.sentence() == "cannot be compared: XLA: off / on"


def test_case_a7_precision_is_no_part_of_a_device_effect():
    runs = frames.runs({"run_id": "cpu"}, {"run_id": "gpu", **GPU, "precision": "mixed_float16"})
    found = check(runs, "cpu", "gpu", Thing.DEVICE)
    assert found.in_the_way == ("precision: float32 / mixed_float16",)
    both = frames.runs(
        {"run_id": "a", "precision": "mixed_float16"}, {"run_id": "b", **GPU, "precision": "mixed_float16"}
    )
    assert check(both, "a", "b", Thing.DEVICE).in_the_way == ("precision: mixed_float16, emulated / mixed_float16",)
    assert baselines(both, "b", Thing.DEVICE) == []
    # What the emulation costs on the CPU itself is a fair question.
    same = frames.runs({"run_id": "a"}, {"run_id": "b", "precision": "mixed_float16"})
    assert check(same, "a", "b", Thing.PRECISION).possible


def test_other_kernels_on_the_cpu_are_in_the_way_but_no_other_machine_by_themselves():
    runs = frames.runs(
        {"run_id": "a", "onednn": "true"}, {"run_id": "b", "onednn": "false", "precision": "mixed_bfloat16"}
    )
    assert check(runs, "a", "b", Thing.PRECISION).in_the_way == ("oneDNN: on / off",)
    assert not check(runs.assign(precision="float32"), "a", "b", Thing.MACHINE).possible
    moved = runs.assign(precision="float32", cpu_model=["A CPU", "Another CPU"])
    assert check(moved, "a", "b", Thing.MACHINE).possible


def test_the_host_must_be_of_one_model_also_when_the_device_is_compared():
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", **GPU, "cpu_model": "Another CPU", "host": "h2"})
    assert check(runs, "a", "b", Thing.DEVICE).in_the_way == ("machine: A CPU / Another CPU",)
    assert check(frames.runs({"run_id": "a"}, {"run_id": "b", **GPU}), "a", "b", Thing.DEVICE).possible
    moved = frames.runs({"run_id": "a"}, {"run_id": "b", "cpu_model": "Another CPU", "precision": "mixed_bfloat16"})
    assert check(moved, "a", "b", Thing.PRECISION).in_the_way == ("machine: A CPU / Another CPU",)


def test_another_host_of_the_same_model_is_noted_and_without_a_model_it_is_in_the_way():
    same = {"precision": "mixed_bfloat16", "host": "h2"}
    found = check(frames.runs({"run_id": "a"}, {"run_id": "b", **same}), "a", "b", Thing.PRECISION)
    assert found.possible
    assert found.notes == ("on other hosts: h1 / h2",)
    unknown = frames.runs({"run_id": "a", "cpu_model": ""}, {"run_id": "b", **same, "cpu_model": ""})
    assert check(unknown, "a", "b", Thing.PRECISION).in_the_way == ("machine: host h1 / host h2",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", "vae"),
        ("dataset", "mnist"),
        ("dataset_options", '{"examples": 6000}'),
        ("global_batch_size", 128),
        ("deterministic", True),
        ("steps_per_execution", 1),
        ("tensorflow", "2.20.0"),
        ("keras", "3.0.0"),
        ("logical_devices", 2),
        ("tensorflow", ""),
    ],
)
def test_every_field_that_differs_is_named(field, value):
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", **GPU, field: value})
    found = check(runs, "a", "b", Thing.DEVICE)
    assert not found.possible
    name = "simulated" if field == "logical_devices" else field
    assert any(text.startswith(f"{term(name)}:") for text in found.in_the_way)


def test_a_value_that_was_not_recorded_is_said():
    runs = frames.runs({"run_id": "a", "keras": ""}, {"run_id": "b", **GPU, "keras": ""})
    found = check(runs, "a", "b", Thing.DEVICE)
    assert found.possible
    assert "Keras's version was not recorded for either run" in found.notes


def test_another_version_of_the_product_is_noted_and_forbids_nothing():
    old, new = "a" * 40, "b" * 40
    runs = frames.runs({"run_id": "b", **GPU, "git_commit": new}, {"run_id": "a", "git_commit": old})
    found = check(runs, "a", "b", Thing.DEVICE)
    assert found.possible
    assert found.notes == ("different versions of Speedup Lab: aaaaaaaaa / bbbbbbbbb",)
    assert cells(frames.runs({"run_id": "a", "git_commit": old}, {"run_id": "b", "git_commit": new})).nunique() == 1
    unknown = frames.runs({"run_id": "a", "git_commit": old}, {"run_id": "b", **GPU})
    assert check(unknown, "a", "b", Thing.DEVICE).notes == (
        "different versions of Speedup Lab: aaaaaaaaa / not recorded",
    )


def test_a_default_given_by_hand_is_no_difference():
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", "dataset_options": '{"pipeline": "memory", "examples": 60000}'})
    assert cells(runs).nunique() == 1


def test_seed_and_learning_rate_do_not_tell_repeats_apart():
    runs = frames.runs(
        {"run_id": "a"}, {"run_id": "b", "seed": 7, "learning_rate": 0.1}, {"run_id": "c", "device": "gpu"}
    )
    assert list(cells(runs)) == [0, 0, 1]


def test_the_batch_rule_decides_what_scaling_compares():
    one = {"run_id": "one"}
    strong = {"run_id": "strong", "device": "cpu", "strategy": "mirrored", "replicas": 2, "global_batch_size": 64}
    weak = {**strong, "run_id": "weak", "global_batch_size": 128}
    runs = frames.runs(one, strong, weak)
    assert check(runs, "one", "strong", Thing.REPLICAS, BatchRule.FIXED_GLOBAL).possible
    assert check(runs, "one", "weak", Thing.REPLICAS, BatchRule.FIXED_PER_REPLICA).possible
    wrong = check(runs, "one", "weak", Thing.REPLICAS, BatchRule.FIXED_GLOBAL)
    assert wrong.in_the_way == ("batch: 64 / 128",)
    wrong = check(runs, "one", "strong", Thing.REPLICAS, BatchRule.FIXED_PER_REPLICA)
    assert wrong.in_the_way == ("batch per replica: 64 / 32",)


def test_workers_that_share_a_machine_have_other_cores_each():
    workers = {"run_id": "two", "workers": 2, "strategy": "multi_worker_mirrored"}
    runs = frames.runs({"run_id": "one", "cpu_threads": None}, {**workers, "cpu_threads": None})
    found = check(runs, "one", "two", Thing.WORKERS)
    assert found.in_the_way == ("CPU threads: (1/1 of the machine) / (1/2 of the machine)",)
    pinned = frames.runs({"run_id": "one"}, workers)
    assert check(pinned, "one", "two", Thing.WORKERS).possible


def test_of_options_only_those_that_differ_are_named():
    runs = frames.runs(
        {"run_id": "a", "dataset": "synthetic", "dataset_options": '{"examples": 640, "delay_ms": 0.0}'},
        {
            "run_id": "b",
            "dataset": "synthetic",
            "dataset_options": '{"examples": 640, "delay_ms": 5.0, "shape": "8x8x1"}',
        },
    )
    (told,) = check(runs, "a", "b", Thing.DEVICE).in_the_way
    assert "delay_ms 0.0 / 5.0" in told
    assert "examples" not in told


def test_equal_runs_have_nothing_to_compare():
    found = check(frames.runs({"run_id": "a"}, {"run_id": "b"}), "a", "b", Thing.DEVICE)
    assert "nothing to compare" in found.in_the_way[0]


def test_baselines_of_a_gpu_run_are_the_matching_cpu_runs_of_which_the_most_repeated_is_suggested():
    runs = frames.runs(
        {"run_id": "gpu", **GPU},
        {"run_id": "lone", "cpu_threads": 2},
        {"run_id": "cpu1"},
        {"run_id": "cpu2"},
        {"run_id": "other", "precision": "mixed_bfloat16"},
        {"run_id": "gpu2", **GPU},
    )
    assert baselines(runs, "gpu", Thing.DEVICE) == ["lone", "cpu1", "cpu2"]
    found = suggestions(runs.assign(status="FINISHED")).set_index("thing")
    assert found.loc["device", "baseline"] == "cpu1"


def test_baselines_of_a_scaled_run_and_how_natural_each_is():
    mirrored = {"device": "gpu", "gpu_model": "A GPU", "strategy": "mirrored"}
    runs = frames.runs(
        {"run_id": "four", **mirrored, "replicas": 4},
        {"run_id": "two", **mirrored, "replicas": 2},
        {"run_id": "one", "device": "gpu", "gpu_model": "A GPU"},
        {"run_id": "plain", **mirrored, "replicas": 4, "seed": 1},
    )
    assert baselines(runs, "four", Thing.REPLICAS) == ["two", "one"]
    assert baselines(runs, "four", Thing.WORKERS) == []
    assert naturalness(fields(runs), Thing.REPLICAS).to_dict() == {"four": 4, "two": 2, "one": 1, "plain": 4}


def test_an_unknown_run_is_an_error():
    with pytest.raises(KeyError, match="nobody"):
        check(frames.runs({"run_id": "a"}), "a", "nobody", Thing.DEVICE)


def test_no_runs_at_all():
    assert list(fields(frames.runs()).columns) == list(FIELDS)
    assert cells(frames.runs()).empty


def test_machines_of_another_size_are_not_alike_where_a_run_takes_all_of_one():
    runs = frames.runs(
        {"run_id": "small", "cpu_threads": None, "cpu_count": 4},
        {"run_id": "large", "cpu_threads": None, "cpu_count": 16},
    )
    assert cells(runs).nunique() == 2
    assert cells(frames.runs({"run_id": "a", "cpu_count": 4}, {"run_id": "b", "cpu_count": 16})).nunique() == 1


def test_layers_placed_by_hand_make_another_configuration():
    runs = frames.runs(
        {"run_id": "a", "manual_placement": "{}"},
        {"run_id": "b"},
        {"run_id": "c", "manual_placement": '{"dense": "/CPU:0"}'},
    )
    assert cells(runs).to_list() == [0, 0, 1]
    assert check(runs, "a", "c", Thing.PLACEMENT).possible
    assert not check(runs, "a", "c", Thing.PRECISION).possible


def test_options_that_are_no_json_equal_only_themselves():
    cut = '{"examples": 60'
    runs = frames.runs(
        {"run_id": "a", "dataset_options": cut}, {"run_id": "b", "dataset_options": cut}, {"run_id": "c"}
    )
    assert cells(runs).to_list() == [0, 0, 1]


@pytest.mark.parametrize(
    ("thing", "plain", "other"),
    [
        (Thing.PRECISION, {}, {"precision": "mixed_bfloat16"}),
        (Thing.XLA, {}, {"jit_compile": True, "jit_compile_resolved": "true"}),
        (Thing.STEPS_PER_EXECUTION, {"steps_per_execution": 1}, {"steps_per_execution": 32}),
        (Thing.DETERMINISM, {}, {"deterministic": True}),
        (Thing.CPU_THREADS, {"cpu_threads": 1}, {"cpu_threads": 2}),
        (Thing.BATCH, {"global_batch_size": 8}, {"global_batch_size": 64}),
        (Thing.DEVICE, {}, GPU),
    ],
)
def test_the_plain_one_or_the_smallest_is_the_natural_baseline(thing, plain, other):
    table = fields(frames.runs({"run_id": "other", **other}, {"run_id": "plain", **plain}))
    assert naturalness(table, thing).idxmin() == "plain"
