"""RunSpec: its JSON form, its text form, and every refusal with field, value and remedy. No TensorFlow."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training import catalog
from training.spec import DEVICES, PRECISIONS, STRATEGIES, RunSpec, SpecError, problems, spec_fields
from training.spec_rules import Severity

FIELDS = [field.name for field in spec_fields()]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


ASSIGNMENTS = st.tuples(st.sampled_from(FIELDS), st.text(max_size=8)).map("=".join)


@st.composite
def plausible_fields(draw):
    """Fields near what makes sense, right and wrong ones mixed."""
    choices = {
        "workload": st.sampled_from([*catalog.WORKLOADS, "resnet"]),
        "dataset": st.sampled_from([*catalog.DATASETS, "imagenet"]),
        "device": st.sampled_from([*DEVICES, "tpu"]),
        "strategy": st.sampled_from([*STRATEGIES, "horovod"]),
        "precision": st.sampled_from([*PRECISIONS, "float8"]),
        "replicas": st.integers(-1, 9),
        "workers": st.integers(-1, 5),
        "logical_devices": st.integers(-1, 9),
        "gpus": st.none() | st.lists(st.integers(-1, 8), max_size=4),
        "cpu_threads": st.none() | st.integers(-1, 9),
        "global_batch_size": st.integers(-1, 70_000),
        "epochs": st.integers(-1, 10),
        "learning_rate": st.floats(),
        "jit_compile": st.booleans(),
        "memory_growth": st.booleans(),
        "memory_limit_mib": st.none() | st.integers(0, 9999),
        "manual_placement": st.dictionaries(
            st.sampled_from(["conv2d", "dense", "encoder", "x"]), st.sampled_from(["/CPU:0", "/CPU:1", "/GPU:0", "gpu"])
        ),
        "dataset_options": st.dictionaries(
            st.sampled_from(["examples", "shape", "pipeline", "delay_ms", "y"]),
            st.integers(-1, 9999) | st.sampled_from(["8x8x1", "28x28x1", "memory", "tf_data", "?"]),
        ),
        "name": st.text(max_size=12),
        "tags": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    }
    names = draw(st.lists(st.sampled_from(list(choices)), unique=True, max_size=8))
    return {name: draw(choices[name]) for name in names}


def made(make, argument):
    """What a constructor gives: a spec, or the SpecError it refuses with. Anything else it raises fails the test."""
    try:
        return make(argument)
    except SpecError as error:
        return error


def refused(**fields):
    """The problems with which a spec is refused, as (field, remedy) pairs; fails when it is not."""
    with pytest.raises(SpecError) as caught:
        RunSpec.from_dict(fields)
    assert all(problem.remedy and problem.message for problem in caught.value.problems)
    return [problem.field for problem in caught.value.problems]


@settings(max_examples=400, deadline=None)
@given(plausible_fields())
def test_a_spec_is_refused_by_name_or_survives_its_json_form(fields):
    outcome = made(RunSpec.from_dict, fields)
    if isinstance(outcome, SpecError):
        assert outcome.problems
        for problem in outcome.problems:
            assert problem.field in FIELDS
            assert problem.message
            assert problem.remedy
            assert "\n" not in str(problem)
    else:
        assert RunSpec.from_json(outcome.to_json()) == outcome
        assert outcome.per_replica_batch_size * outcome.total_replicas == outcome.global_batch_size
        assert all(problem.severity is Severity.WARNING for problem in problems(outcome))


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), JSON, max_size=5))
def test_any_json_object_gives_a_spec_or_a_spec_error(values):
    assert str(made(RunSpec.from_dict, values))


@settings(max_examples=200, deadline=None)
@given(JSON | st.text())
def test_any_document_and_any_text_gives_a_spec_or_a_spec_error(document):
    text = document if isinstance(document, str) else json.dumps(document)
    assert str(made(RunSpec.from_json, text))


@settings(max_examples=200, deadline=None)
@given(st.lists(ASSIGNMENTS | st.text()))
def test_any_assignments_give_a_spec_or_a_spec_error(assignments):
    assert str(made(RunSpec.from_assignments, assignments))


def test_assignments_are_read_by_the_type_of_their_field():
    spec = RunSpec.from_assignments(
        [
            "epochs=2",
            "learning_rate=0.01",
            "deterministic=yes",
            "name=a=b",
            "cpu_threads=3",
            "cpu_threads=",
            "dataset=synthetic",
            "dataset_options.examples=640",
            "dataset_options.shape=32x32x3",
            "tags.team=vision",
        ]
    )
    assert (spec.epochs, spec.learning_rate, spec.deterministic, spec.name) == (2, 0.01, True, "a=b")
    assert spec.cpu_threads is None
    assert spec.dataset_options == {"examples": 640, "shape": "32x32x3"}
    assert spec.tags == {"team": "vision"}
    assert RunSpec.from_assignments(["device=gpu", "strategy=mirrored", "replicas=2", "gpus=5,6"]).gpus == (5, 6)


@pytest.mark.parametrize("text", ["epochs", "=3", "epochs=two", "deterministic=maybe", "tags=x", "gpus=a", "epoch=3"])
def test_an_assignment_that_cannot_be_read_is_refused(text):
    with pytest.raises(SpecError):
        RunSpec.from_assignments([text])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RunSpec.from_dict({"learning_rate": 10**400}), "learning_rate"),
        (lambda: RunSpec.from_dict({"epochs": 10**400}), "epochs"),
        (lambda: RunSpec.from_dict({"dataset": "synthetic", "dataset_options": {"examples": 10**400}}), "examples"),
        (lambda: RunSpec.from_assignments(["dataset=synthetic", f"dataset_options.examples=1{'0' * 400}"]), "examples"),
        (lambda: RunSpec.from_assignments([f"learning_rate=1{'0' * 400}"]), "learning_rate"),
        (lambda: RunSpec.from_assignments(["tags.team=vision"], {"tags": None}), "tags"),
        (lambda: RunSpec.from_assignments(["dataset_options.examples=5"], {"dataset_options": [1]}), "dataset_options"),
    ],
)
def test_what_python_cannot_turn_into_a_number_or_an_object_is_refused(make, named):
    with pytest.raises(SpecError, match=named):
        make()


def test_a_misspelt_field_is_named_with_the_right_one():
    with pytest.raises(SpecError, match="did you mean epochs"):
        RunSpec.from_dict({"epoch": 3})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"workload": "resnet"}, "workload"),
        ({"dataset": "imagenet"}, "dataset"),
        ({"device": "tpu"}, "device"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": True}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"name": "a\x1b[31m"}, "name"),
        ({"name": "x" * 251}, "name"),
        ({"tags": {"k" * 300: "v"}}, "tags"),
        ({"tags": {"k": "a\nb=c"}}, "tags"),
        ({"tags": {"k ": "v"}}, "tags"),
        ({"tags": {"k": " v"}}, "tags"),
        ({"name": "\u200b"}, "name"),
        ({"name": "a\u2028b"}, "name"),
        ({"name": "a\x85b"}, "name"),
        ({"manual_placement": {"conv2d": "/CPU:٠"}}, "manual_placement"),
        ({"manual_placement": {"conv2d": "/CPU:00"}}, "manual_placement"),
        ({"strategy": "one_device", "replicas": 2, "logical_devices": 2}, "replicas"),
        ({"strategy": "mirrored", "workers": 2}, "workers"),
        ({"strategy": "mirrored", "replicas": 2}, "replicas"),
        ({"strategy": "mirrored", "replicas": 4, "logical_devices": 2}, "logical_devices"),
        ({"strategy": "mirrored", "replicas": 4, "logical_devices": 4, "global_batch_size": 2}, "global_batch_size"),
        ({"strategy": "mirrored", "replicas": 3, "logical_devices": 3}, "global_batch_size"),
        ({"dataset": "digits", "global_batch_size": 2000}, "global_batch_size"),
        ({"strategy": "mirrored", "jit_compile": True}, "jit_compile"),
        ({"strategy": "mirrored", "manual_placement": {"conv2d": "/CPU:0"}}, "manual_placement"),
        ({"manual_placement": {"conv2d": "/GPU:0"}}, "manual_placement"),
        ({"manual_placement": {"conv9": "/CPU:0"}}, "manual_placement"),
        ({"manual_placement": {"conv2d": "cpu"}}, "manual_placement"),
        ({"jit_compile": True, "manual_placement": {"conv2d": "/CPU:0"}}, "manual_placement"),
        ({"gpus": [0]}, "gpus"),
        ({"device": "gpu", "gpus": []}, "gpus"),
        ({"device": "gpu", "gpus": [0, 0]}, "gpus"),
        ({"device": "gpu", "gpus": [0, 1]}, "gpus"),
        ({"memory_growth": True}, "memory_growth"),
        ({"device": "gpu", "memory_growth": True, "memory_limit_mib": 1024}, "memory_growth"),
        ({"device": "gpu", "memory_growth": True, "logical_devices": 2}, "memory_growth"),
        ({"memory_limit_mib": 1024}, "memory_limit_mib"),
        ({"dataset_options": {"shape": "8x8x1"}}, "dataset_options"),
        ({"dataset": "synthetic", "dataset_options": {"shape": "8x8x1"}}, "dataset_options"),
        ({"dataset": "synthetic", "dataset_options": {"examples": 0}}, "dataset_options"),
        ({"workload": "vae", "dataset": "synthetic", "dataset_options": {"shape": "30x30x1"}}, "dataset_options"),
    ],
)
def test_what_does_not_go_together_is_refused_at_its_field(fields, field):
    assert field in refused(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"precision": "mixed_float16"}, "precision"),
        ({"logical_devices": 2}, "logical_devices"),
        ({"dataset": "synthetic", "dataset_options": {"delay_ms": 5}}, "dataset_options"),
    ],
)
def test_what_is_doubtful_warns_and_may_run(fields, field):
    (warning,) = problems(RunSpec.from_dict(fields))
    assert (warning.field, warning.severity) == (field, Severity.WARNING)


def test_every_problem_is_told_at_once():
    assert set(refused(epochs=0, seed=-1, device="tpu")) == {"epochs", "seed", "device"}


def test_every_field_has_what_a_form_needs():
    for field in dataclasses.fields(RunSpec):
        assert {"part", "label", "help"} <= set(field.metadata), field.name


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, "CPU:0"),
        ({"device": "gpu", "strategy": "mirrored", "replicas": 2, "gpus": [3, 5]}, "GPU:0, GPU:1 (physical 3, 5)"),
        ({"strategy": "multi_worker_mirrored", "workers": 2}, "2 workers x CPU:0"),
        (
            {"strategy": "mirrored", "replicas": 2, "logical_devices": 2},
            "CPU:0, CPU:1 (simulated: 2 logical devices on one CPU)",
        ),
        ({"device": "gpu", "strategy": "mirrored", "replicas": 32}, "GPU:0 to GPU:31"),
    ],
)
def test_devices_asked_in_tensorflows_names(fields, asked):
    assert RunSpec.from_dict(fields).devices_asked == asked
