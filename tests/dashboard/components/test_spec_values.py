"""What the form offers, and the command that says the same."""

import shlex
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.components import spec_values
from training.spec import DEVICES, STRATEGIES, RunSpec, problems, spec_fields

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"]), max_size=40).filter(
    lambda typed: typed.strip() or not typed
)


@given(
    name=NAMES,
    notes=NAMES,
    epochs=st.integers(1, 1_000),
    learning_rate=st.floats(1e-9, 10, allow_nan=False),
    examples=st.integers(64, 6_000),
    memory=st.none() | st.integers(64, 10_000),
    tag=st.text("abc_ .-/:", min_size=1, max_size=10).filter(lambda key: key == key.strip()),
)
def test_the_command_starts_the_same_run_whatever_was_typed(
    name: str, notes: str, epochs: int, learning_rate: float, examples: int, memory: int | None, tag: str
) -> None:
    spec = RunSpec(
        dataset="synthetic",
        dataset_options={"examples": examples, "pipeline": "tf_data"},
        device="gpu",
        gpus=(0,),
        epochs=epochs,
        learning_rate=learning_rate,
        memory_limit_mib=memory,
        name=name,
        notes=notes,
        tags={tag: name.strip()},
        manual_placement={"conv2d": "/CPU:0"},
        log_device_placement=False,
    )

    words = shlex.split(spec_values.command(spec))

    assert words[:4] == ["python", "-m", "experiments", "run"]
    assert set(words[4::2]) <= {"--set"}
    assert RunSpec.from_assignments(words[5::2]) == spec


def test_only_what_differs_is_in_the_command() -> None:
    assert spec_values.command(RunSpec()) == "python -m experiments run"
    assert spec_values.command(RunSpec(epochs=2, name="it's; rm -rf ~")) == (
        "python -m experiments run --set epochs=2 --set 'name=it'\"'\"'s; rm -rf ~'"
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_the_form_offers_goes_together(device: str, strategy: str) -> None:
    """Every field that is on offer may be changed without a refusal that only hiding it would prevent."""
    choices: dict[str, typing.Any] = {"device": device, "strategy": strategy, "gpus": ()}
    changed = {
        "workers": 2,
        "memory_growth": True,
        "memory_limit_mib": 1_024,
        "jit_compile": True,
        "manual_placement": {"dense": "/CPU:0"},
    }
    for name, value in changed.items():
        # Two replicas divide the batch, and one device and several workers have one each.
        replicas = 2 if strategy == "mirrored" else 1
        base: dict[str, typing.Any] = {
            "device": device,
            "strategy": strategy,
            "replicas": replicas,
            "workers": 2 if strategy == "multi_worker_mirrored" else 1,
            "logical_devices": spec_values.settled_logical_devices(device, strategy, replicas),
        }
        refused = [str(one) for one in problems(RunSpec(**{**base, name: value})) if one.severity == "error"]

        offered = spec_values.is_shown(name, choices, gpus=4, gpu_ids=(0, 1, 2, 3))
        assert offered == (not refused), f"{name} with {device}, {strategy}: offered {offered}, {refused}"


def test_replicas_are_offered_only_where_there_can_be_several() -> None:
    for strategy in STRATEGIES:
        shown = spec_values.is_shown("replicas", {"device": "cpu", "strategy": strategy, "gpus": ()}, 0, ())
        assert shown == (strategy != "one_device")


def test_gpus_are_offered_only_where_there_are_some_to_choose() -> None:
    on_gpu = {"device": "gpu", "strategy": "one_device", "gpus": ()}

    assert not spec_values.is_shown("device", {**on_gpu, "device": "cpu"}, 0, ())
    assert spec_values.is_shown("device", {**on_gpu, "device": "cpu"}, 1, (0,))
    # A spec used again keeps asking for its GPU where there is none, so that the refusal is seen.
    assert spec_values.is_shown("device", on_gpu, 0, ())
    assert not spec_values.is_shown("gpus", on_gpu, 1, (0,))
    assert spec_values.is_shown("gpus", on_gpu, 2, (0, 1))
    assert not spec_values.is_shown("gpus", on_gpu, 8, ())
    assert not spec_values.is_shown("gpus", {**on_gpu, "strategy": "multi_worker_mirrored"}, 2, (0, 1))


def test_placement_devices_are_those_the_rules_accept() -> None:
    assert spec_values.placement_devices("cpu", 1, 0) == ["/CPU:0"]
    assert spec_values.placement_devices("cpu", 1, 2) == ["/CPU:0", "/CPU:1"]
    assert spec_values.placement_devices("gpu", 1, 0) == ["/CPU:0", "/GPU:0"]
    assert spec_values.placement_devices("gpu", 1, 2) == ["/CPU:0", "/GPU:0", "/GPU:1"]


def test_derived_sizes() -> None:
    found = spec_values.derived(
        RunSpec(strategy="mirrored", replicas=2, logical_devices=2, global_batch_size=64, epochs=3)
    )

    assert found == spec_values.Derived(
        total_replicas=2,
        per_replica_batch_size=32,
        steps_per_epoch=937,
        total_steps=2_811,
        examples_left_out=32,
        training_examples=60_000,
        validation_examples=10_000,
    )


def test_a_step_limit_leaves_out_more() -> None:
    found = spec_values.derived(RunSpec(dataset="synthetic", max_steps_per_epoch=10))

    assert found is not None
    assert (found.steps_per_epoch, found.examples_left_out) == (10, 6_000 - 640)


def test_nothing_is_derived_from_nonsense() -> None:
    assert spec_values.derived(RunSpec(dataset="nowhere")) is None
    assert spec_values.derived(RunSpec(global_batch_size=0)) is None


@given(st.dictionaries(st.text("abc_.", min_size=1), st.text("xyz =,", max_size=9).map(str.strip), max_size=5))
def test_tags_survive_the_text_area(tags: dict[str, str]) -> None:
    assert spec_values.parse_tags(spec_values.format_tags(tags)) == (tags, "")


@pytest.mark.parametrize("typed", ["no equals sign", "=value", "a=b\nc"])
def test_tags_that_are_none_are_named(typed: str) -> None:
    assert "has no '='" in spec_values.parse_tags(typed)[1]


def test_every_field_has_what_the_form_needs() -> None:
    for field in spec_fields():
        assert field.metadata["label"]
        assert field.metadata["help"]
        assert spec_values.kind(field)[0] is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("choose multi_worker_mirrored, or 1 worker", "choose MultiWorkerMirrored, or 1 worker"),
        ("does not go with one_device", "does not go with OneDevice"),
        ("set logical_devices=2 to simulate them, or choose device=gpu", None),
        ("excludes memory_limit_mib", None),
        ("give at least 2, as epochs says", "give at least 2, as epochs says"),
    ],
)
def test_refusals_speak_the_forms_language(text: str, said: str | None) -> None:
    labels = {field.name: field.metadata["label"] for field in spec_fields()}
    expected = {
        "set logical_devices=2 to simulate them, or choose device=gpu": (
            f"set {labels['logical_devices']} 2 to simulate them, or choose {labels['device']} GPU"
        ),
        "excludes memory_limit_mib": f"excludes {labels['memory_limit_mib']}",
    }
    assert spec_values.in_form_words(text) == (said or expected[text])
