"""Two runs beside each other: by what they compare, what is in the way, which come nearest, the natural baseline."""

import pytest

from experiments.analysis.baselines import baselines
from experiments.analysis.comparable import QUESTIONS, Thing
from experiments.analysis.pairs import natural, nearest, ordered, others, pair
from tests.experiments.analysis import frames

GPU = {"device": "gpu", "gpu_model": "A GPU"}
HALF = {**GPU, "precision": "mixed_float16"}


def _runs():
    return frames.runs(
        {"run_id": "half", **HALF},
        {"run_id": "gpu0", **GPU},
        {"run_id": "gpu1", **GPU},
        {"run_id": "cpu0"},
        {"run_id": "cpu1"},
    )


def test_a_pair_is_compared_by_the_thing_that_differs():
    found = pair(_runs(), "cpu0", "gpu0")
    assert (found.thing, found.check.possible) == (Thing.DEVICE, True)
    found = pair(_runs(), "cpu0", "half")
    assert not found.check.possible
    assert found.check.in_the_way == ("precision: float32 / mixed_float16",)


def test_repeats_have_nothing_to_compare():
    found = pair(_runs(), "cpu0", "cpu1")
    assert found.check.sentence() == (
        "cannot be compared: all fields are the same in both runs, so there is nothing to compare"
    )


@pytest.mark.parametrize(
    ("thing", "other"),
    [
        (Thing.CPU_THREADS, {"cpu_threads": 2}),
        (Thing.STRATEGY, {"strategy": "mirrored"}),
        (Thing.REPLICAS, {"replicas": 2, "strategy": "mirrored"}),
        (Thing.MACHINE, {"cpu_model": "Another CPU"}),
        (Thing.VERSIONS, {"keras": "3.0.0"}),
        (Thing.BATCH, {"global_batch_size": 32}),
    ],
)
def test_what_only_follows_from_a_thing_is_not_that_thing(thing, other):
    """Threads may differ with the device and the strategy with the replicas; alone they are things of their own."""
    runs = frames.runs({"run_id": "a"}, {"run_id": "b", **other})
    found = pair(runs, "a", "b")
    assert (found.check.possible, found.thing) == (True, thing)
    assert baselines(runs, "a", found.thing, rule=found.rule) == ["b"]


def test_every_other_configuration_stands_beside_a_run_the_nearest_first():
    runs = frames.runs({"run_id": "far", **HALF, "workload": "vae"}, *_runs().to_dict("records"))
    found = others(runs, "cpu1")
    assert found["run_ids"].tolist() == [("gpu0", "gpu1"), ("half",), ("far",)]
    assert found["in_the_way"].tolist() == [0, 1, 2]
    assert found["differs"][1] == {"device": "gpu", "precision": "mixed_float16", "gpu": "A GPU"}
    assert others(frames.runs({"run_id": "a"}), "a").empty


def test_the_nearest_runs_name_the_fields_in_the_way():
    found = nearest(_runs(), "half", [(thing, rule) for thing, rule in QUESTIONS if thing is Thing.DEVICE])
    assert [(each.candidate, each.check.in_the_way) for each in found] == [
        ("cpu0", ("precision: mixed_float16 / float32",)),
        ("gpu0", ("precision: mixed_float16 / float32",)),
    ]


def test_the_natural_baseline_of_a_run_is_the_plainer_one():
    assert natural(_runs(), "half") == ("gpu0", "half")
    assert natural(_runs(), "gpu1") == ("cpu0", "gpu1")
    assert natural(_runs(), "cpu1") == ("cpu1", "")
    assert natural(frames.runs({"run_id": "half", **HALF}, {"run_id": "cpu"}), "half") == ("half", "")


def test_of_two_runs_the_plainer_is_the_baseline_and_else_the_older():
    cpu, gpu = {"run_id": "cpu"}, {"run_id": "gpu", **GPU}
    assert ordered(frames.runs(cpu, gpu)) == ordered(frames.runs(gpu, cpu)) == ("cpu", "gpu")
    assert ordered(frames.runs({"run_id": "newer", "keras": "4"}, {"run_id": "older"})) == ("older", "newer")
    assert ordered(frames.runs({"run_id": "newer", **HALF}, {"run_id": "older"})) == ("older", "newer")


@pytest.mark.parametrize("asked", [lambda runs: pair(runs, "cpu0", "nobody"), lambda runs: others(runs, "nobody")])
def test_an_unknown_run_is_an_error(asked):
    with pytest.raises(KeyError, match="nobody"):
        asked(_runs())
