"""Every configuration against one baseline, and what can be compared at all."""

import numpy as np
import pytest

from experiments.analysis.comparable import BatchRule, Thing
from experiments.analysis.evidence import LEFT_OUT_COLUMNS, gather
from experiments.analysis.speedup import steady_speedup
from experiments.analysis.tables import (
    SPEEDUP_COLUMNS,
    SUGGESTION_COLUMNS,
    labels_of,
    speedups,
    suggestions,
    suggestions_for,
    title,
    to_compare,
)
from experiments.analysis_text import speedups_text
from tests.experiments.analysis import frames

GPU = {"device": "gpu", "gpu_model": "A GPU"}


def _runs():
    return frames.runs(
        {"run_id": "half", **GPU, "precision": "mixed_float16"},
        *({"run_id": f"gpu{i}", **GPU} for i in range(3)),
        *({"run_id": f"cpu{i}"} for i in range(3)),
    )


def _history(**milliseconds):
    """Epochs of 1,000 examples: the first with warm-up, then three of a length; with 1% between runs."""
    return frames.pd.concat(
        [frames.epochs(run_id, [2 * each / 1e3, *[each / 1e3] * 3]) for run_id, each in milliseconds.items()],
        ignore_index=True,
    )


@pytest.fixture
def evidence():
    speeds = {f"cpu{i}": 10_000 + 100 * i for i in range(3)} | {f"gpu{i}": 1_000 + 10 * i for i in range(3)}
    return gather(_runs(), _history(**speeds, half=333))


def test_equal_runs_are_taken_together(evidence):
    found = speedups(evidence, "cpu1", Thing.DEVICE)
    assert list(found.table.columns) == list(SPEEDUP_COLUMNS)
    (row,) = found.table.to_dict("records")
    assert row["run_ids"] == ("gpu0", "gpu1", "gpu2")
    assert row["ratio"] == pytest.approx(10.0, rel=1e-6)
    assert row["low"] < 10.0 < row["high"]
    assert row["throughput"] == pytest.approx(1000 / 1.01, rel=1e-3)
    assert row["end_to_end"] < 10.0
    assert found.baseline_run_ids == ("cpu0", "cpu1", "cpu2")
    assert (row["label"], found.baseline) == ("GPU", "CPU")
    assert found.title.startswith("GPU is 10.00x (9.7")
    assert found.title.endswith("as fast as CPU")


def test_what_a_start_costs_is_told_with_its_interval(evidence):
    runs = _runs()
    runs.loc[runs["device"] == "gpu", "time_startup"] = [40.0, 39.5, 40.0, 40.5]
    found = speedups(gather(runs, evidence.history), "cpu1", Thing.DEVICE)
    (row,) = found.table.to_dict("records")
    assert row["break_even_epochs"] == 3
    assert 2 < row["break_even_low"] < row["break_even_high"] < 4
    words = f"after 3 epochs ({row['break_even_low']:.1f} to {row['break_even_high']:.1f} epochs)"
    assert row["break_even"].endswith(words)
    assert words in speedups_text(found)


def test_only_runs_that_match_are_asked_for():
    assert to_compare(_runs(), "cpu1", Thing.DEVICE) == [f"gpu{i}" for i in range(3)] + [f"cpu{i}" for i in range(3)]
    assert to_compare(_runs(), "half", Thing.PRECISION) == ["half", "gpu0", "gpu1", "gpu2"]
    with pytest.raises(KeyError, match="nobody"):
        to_compare(_runs(), "nobody", Thing.DEVICE)


def test_nothing_to_compare_with():
    found = speedups(gather(frames.runs({"run_id": "a"}), _history(a=10)), "a", Thing.DEVICE)
    assert found.table.empty
    assert list(found.table.columns) == list(SPEEDUP_COLUMNS)
    assert found.title.startswith("Nothing to compare with")


def test_doubtful_runs_stay_out_and_visible_and_may_be_put_back(evidence):
    runs = _runs()
    runs.loc[runs["run_id"] == "gpu1", "status"] = "KILLED"
    doubtful = gather(runs, evidence.history)
    found = speedups(doubtful, "cpu1", Thing.DEVICE)
    assert found.table["run_ids"][0] == ("gpu0", "gpu2")
    assert list(found.left_out.columns) == list(LEFT_OUT_COLUMNS)
    assert list(found.left_out[["run_id", "flag"]].iloc[0]) == ["gpu1", "unfinished"]
    again = gather(runs, evidence.history, put_back=frozenset({"gpu1"}))
    assert speedups(again, "cpu1", Thing.DEVICE).table["run_ids"][0] == ("gpu0", "gpu1", "gpu2")


def test_a_baseline_without_a_usable_run_says_so(evidence):
    runs = _runs()
    runs.loc[runs["device"] == "cpu", "status"] = "FAILED"
    found = speedups(gather(runs, evidence.history), "cpu1", Thing.DEVICE)
    assert found.title == "No run of the baseline (CPU) can be used"
    assert found.table["ratio"].isna().all()
    assert "baseline has no run" in found.table["sentence"][0]


def test_slower_is_said_and_never_hidden():
    history = _history(**{f"cpu{i}": 100 + i for i in range(3)}, **{f"gpu{i}": 1_000 + 10 * i for i in range(3)})
    runs = _runs().iloc[1:].reset_index(drop=True)
    found = speedups(gather(runs, history), "cpu0", Thing.DEVICE)
    assert found.table["ratio"][0] == pytest.approx(0.1, rel=0.01)
    assert found.title == "CPU is the fastest: everything else is slower"


def test_one_run_each_is_no_finding():
    runs = frames.runs({"run_id": "g", **GPU}, {"run_id": "c"})
    found = speedups(gather(runs, _history(g=10, c=100)), "c", Thing.DEVICE)
    assert found.title == "GPU ran at 10.00x of CPU: too few runs to call it a difference"


def test_labels_name_only_what_differs_and_nothing_twice():
    runs = frames.runs(
        {"run_id": "a"},
        {"run_id": "b", "replicas": 2, "strategy": "mirrored"},
        {"run_id": "c", "replicas": 2, "strategy": "mirrored", "jit_compile_resolved": "true"},
    )
    labels = labels_of(runs)
    assert labels["a"] == "1 replica, XLA off"
    assert labels["c"] == "2 replicas, XLA on"
    assert list(labels_of(runs.iloc[:1])) == ["all runs alike"]


def test_suggestions_are_sets_that_differ_in_one_thing():
    found = suggestions(_runs())
    assert list(found.columns) == list(SUGGESTION_COLUMNS)
    assert found[["thing", "baseline", "configurations", "runs"]].to_dict("records") == [
        {"thing": "precision", "baseline": "gpu0", "configurations": 2, "runs": 4},
        {"thing": "device", "baseline": "cpu0", "configurations": 2, "runs": 6},
    ]
    assert found["label"][0] == "mnist_cnn on fashion_mnist, gpu, batch 64"
    assert found["run_ids"][0] == ("half", "gpu0", "gpu1", "gpu2")


def test_suggestions_start_scaling_at_one_and_batches_at_the_smallest():
    weak = [
        {
            "run_id": f"r{n}",
            "replicas": n,
            "global_batch_size": 64 * n,
            "strategy": "mirrored" if n > 1 else "one_device",
        }
        for n in (4, 2, 1)
    ]
    found = suggestions(frames.runs(*weak))
    assert found[["thing", "rule", "baseline"]].to_dict("records") == [
        {"thing": "replicas", "rule": BatchRule.FIXED_PER_REPLICA, "baseline": "r1"}
    ]
    sizes = suggestions(frames.runs(*({"run_id": f"b{n}", "global_batch_size": n} for n in (256, 64, 1024))))
    assert list(sizes["baseline"]) == ["b64"]
    assert suggestions(frames.runs()).empty
    assert suggestions(frames.runs({"run_id": "a"}, {"run_id": "b"})).empty


def test_a_chosen_baseline_is_told_by_what_it_compares():
    found = suggestions_for(_runs(), "gpu1")
    assert list(found.columns) == list(SUGGESTION_COLUMNS)
    assert found[["thing", "baseline", "configurations", "runs"]].to_dict("records") == [
        {"thing": "device", "baseline": "gpu1", "configurations": 2, "runs": 6},
        {"thing": "precision", "baseline": "gpu1", "configurations": 2, "runs": 4},
    ]
    alone = suggestions_for(frames.runs({"run_id": "a"}, {"run_id": "b"}), "a")
    assert alone.empty
    assert list(alone.columns) == list(SUGGESTION_COLUMNS)
    runs = _runs()
    runs.loc[runs["device"] == "gpu", "status"] = "RUNNING"
    assert suggestions_for(runs, "cpu1").empty
    with pytest.raises(KeyError, match="nobody"):
        suggestions_for(_runs(), "nobody")


def test_the_suggested_baseline_is_the_plain_one_whatever_is_newest():
    runs = frames.runs(
        {"run_id": "b16", "precision": "mixed_bfloat16"},
        {"run_id": "f16", "precision": "mixed_float16"},
        {"run_id": "f16 again", "precision": "mixed_float16"},
        {"run_id": "f32"},
    )
    assert list(suggestions(runs)["baseline"]) == ["f32"]


def test_the_title_speaks_of_the_fastest_and_not_of_another_that_ran_once():
    history = _history(**{f"cpu{i}": 1_000 + 10 * i for i in range(3)}, **{f"gpu{i}": 990 + 15 * i for i in range(3)})
    runs = frames.runs(*({"run_id": f"gpu{i}", **GPU} for i in range(3)), *({"run_id": f"cpu{i}"} for i in range(3)))
    assert speedups(gather(runs, history), "cpu0", Thing.DEVICE).title == "No configuration is surely faster than CPU"


def _title_of_nine(rng, fastest=1.0):
    """The title over a baseline and eight configurations, three runs each that differ by 2%; one may be faster."""
    runs = {name: [f"{name}{i}" for i in range(3)] for name in "abcdefghi"}
    speeds = {"i": fastest}
    steady = frames.steady(
        **{
            run_id: 1000 * speeds.get(name, 1.0) * float(np.exp(0.02 * rng.standard_normal()))
            for name, run_ids in runs.items()
            for run_id in run_ids
        }
    )
    rows = []
    for name in "bcdefghi":
        found = steady_speedup(steady, runs["a"], runs[name])
        rows.append({"label": name, "run_ids": tuple(runs[name]), "ratio": found.ratio, "called": str(found.called)})
    table = frames.pd.DataFrame(rows).sort_values("ratio", ascending=False, ignore_index=True)
    return title(table, "a", runs["a"], steady), (table["called"] == "faster").any()


def test_a_title_over_eight_equal_configurations_seldom_claims_a_difference():
    rng = np.random.default_rng(8)
    titles, rows = zip(*(_title_of_nine(rng) for _ in range(80)), strict=True)
    nothing = "No configuration is surely faster than a, 8 comparisons allowed for"
    assert np.mean([each != nothing for each in titles]) <= 0.06 < np.mean(rows)


def test_a_title_over_eight_configurations_still_finds_the_faster_one():
    said, _ = _title_of_nine(np.random.default_rng(9), 1.5)
    assert said.startswith("i is 1.")
    assert said.endswith(" as fast as a, 8 comparisons allowed for")


def test_fields_are_said_as_a_reader_would():
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", "manual_placement": '{"dense": "/CPU:0"}'})
    assert list(labels_of(runs)) == ["no layer placed by hand", 'layers placed by hand {"dense": "/CPU:0"}']
