"""Runs that are made slow on purpose: the verdict names the cause in every one."""

import typing

import pandas as pd
import pytest

from experiments.analysis.timing import steady_states
from experiments.analysis.verdict import Cause, Verdict, verdict
from tests.experiments.analysis import frames
from tests.support.training_run import Outcome, train
from training.spec import RunSpec

# Alone: where other tests share the cores, there is no steady state, and every step waits for them.
pytestmark = [pytest.mark.slow, pytest.mark.alone]

SMALL = {"epochs": 3, "log_device_placement": False, "steps_per_execution": 8}


def history_of(run: Outcome) -> pd.DataFrame:
    """What the run's chief reported, as the recorder logs it: an epoch's figures under the epoch's number."""
    series: dict[str, list[tuple[int, float]]] = {}
    for event in run.events():
        if event["type"] == "metrics":
            for name, value in event["values"].items():
                series.setdefault(name, []).append((int(event.get("step", 0)), value))
        elif event["type"] == "series":
            series.setdefault(event["name"], []).extend((int(step), value) for step, value, _ in event["points"])
    return frames.history(
        *(
            ("run", name, [step for step, _ in points], [value for _, value in points])
            for name, points in series.items()
        )
    )


def verdict_of(**fields: typing.Any) -> Verdict:
    """Of the first of three runs: the next one where there is none, as something else took the machine meanwhile and no
    steady state was seen."""
    for seed in range(3):
        found, steady = _verdict_of(seed=seed, **fields)
        if steady or found.cause is not Cause.UNKNOWN:
            break
        print(f"no steady state with seed {seed}")
    return found


def _verdict_of(**fields: typing.Any) -> tuple[Verdict, bool]:
    run = train(**SMALL | fields)
    assert run.end() == ("FINISHED", "")
    spec = RunSpec.from_dict(SMALL | fields)
    history = history_of(run)
    named = {name: value for name, value in spec.to_dict().items() if name in frames.RUN_COLUMNS}
    named |= {"dataset_options": str(fields.get("dataset_options", {})), "run_id": "run"}
    runs = frames.runs({**named, "time_total": history.loc[history["metric"] == "time/total", "value"].iloc[0]})
    states = steady_states(runs, history)
    return verdict("run", runs, states, history), bool(states["steady"].all())


def test_an_input_pipeline_that_sleeps():
    found = verdict_of(
        dataset="synthetic",
        dataset_options={"examples": 640, "validation_examples": 50, "pipeline": "tf_data", "delay_ms": 200.0},
        global_batch_size=32,
    )
    assert found.cause is Cause.INPUT, found.sentence()
    assert found.share > 0.5


def test_a_batch_of_one():
    found = verdict_of(
        dataset="synthetic", dataset_options={"examples": 400, "validation_examples": 10}, global_batch_size=1
    )
    assert found.cause is Cause.LAUNCHING, found.sentence()
    assert found.share > 0.5


def test_a_small_model_on_several_workers():
    """Two examples a worker are a small batch as well: either cause may be the larger one."""
    found = verdict_of(
        dataset="synthetic",
        dataset_options={"examples": 800, "validation_examples": 10},
        global_batch_size=4,
        strategy="multi_worker_mirrored",
        workers=2,
        cpu_threads=1,
    )
    assert Cause.SYNCHRONISING in {found.cause, *found.also()}, found.sentence()
    assert found.shares[Cause.SYNCHRONISING].value > 0.2


def test_a_small_model_on_many_replicas():
    """Simulated ones share two cores, so each also waits for the launch of the others' small ops: more or less of it,
    so either cause may be the larger one."""
    found = verdict_of(
        dataset="synthetic",
        dataset_options={"examples": 800, "validation_examples": 10},
        global_batch_size=8,
        strategy="mirrored",
        replicas=4,
        logical_devices=4,
    )
    assert Cause.SYNCHRONISING in {found.cause, *found.also()}, found.sentence()
    assert "synchronising" in found.sentence()
