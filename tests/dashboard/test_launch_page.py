"""Launch: only what goes together, refusals beside their field, one press one run or one set of them."""

import shlex
import time

import pytest
from streamlit.testing.v1 import AppTest

from experiments import capacity, queue
from experiments.capacity import Capacity
from experiments.results import Results
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import table, words
from tests.dashboard.seed import NASTY_NAMES, add_run
from training.names import RunStatus, Tag
from training.spec import RunSpec, SpecError, spec_fields
from training.spec_rules import Problem


def labels(app: AppTest) -> set[str]:
    found = [*app.selectbox, *app.number_input, *app.text_input, *app.text_area, *app.toggle, *app.segmented_control]
    return {widget.label for widget in found}


def start(app: AppTest) -> AppTest:
    button = next(button for button in app.button if button.label == "Start")
    assert not button.disabled
    return button.click().run()


def runs(settings: Settings) -> list[dict]:
    return Results(settings).rows()


@pytest.fixture
def launch(home: Settings, open_page: OpenPage) -> AppTest:
    """The page with a data set that is on every machine."""
    app = open_page("launch")
    return app.selectbox(key="launch_dataset").set_value("synthetic").run()


def test_every_field_of_a_spec_is_on_the_form_or_has_a_reason_not_to(launch: AppTest) -> None:
    shown = labels(launch)
    missing = {field.name for field in spec_fields() if field.metadata["label"] not in shown}

    # One device on a CPU: nothing about GPUs, replicas or workers. Options and placement have widgets of their own.
    assert missing == {
        "device",
        "replicas",
        "workers",
        "gpus",
        "memory_growth",
        "memory_limit_mib",
        "dataset_options",
        "manual_placement",
    }
    assert {"Examples", "Pipeline", "Shape", "conv2d", "dense_1"} <= shown


def test_what_is_derived_is_shown_and_follows(launch: AppTest) -> None:
    sizes = derived(launch)
    assert sizes["Batch per replica"] == "64 examples"
    assert sizes["Steps per epoch"] == "93"
    assert sizes["Left out per epoch"] == "48 of 6,000"

    launch.number_input(key="launch_global_batch_size").set_value(100).run()

    sizes = derived(launch)
    assert sizes["Steps per epoch"] == "60"
    assert sizes["Steps in all"] == "300"
    assert sizes["Left out per epoch"] == "nothing"


def derived(app: AppTest) -> dict[str, str]:
    frame = app.table[0].value
    return {str(name): str(value) for name, value in zip(frame.index, frame.iloc[:, 0], strict=True)}


def test_mirrored_on_a_cpu_simulates_its_devices_and_says_so(launch: AppTest) -> None:
    launch.segmented_control(key="launch_strategy").set_value("mirrored").run()

    assert launch.number_input(key="launch_replicas").value == 2
    assert launch.number_input(key="launch_logical_devices").value == 2
    assert "2 simulated devices" in words(launch)
    assert "use them to test, not to measure speed" in words(launch)
    assert "XLA (jit_compile)" not in labels(launch)
    assert "conv2d" not in labels(launch)

    launch.number_input(key="launch_replicas").set_value(4).run()
    assert launch.number_input(key="launch_logical_devices").value == 4

    launch.segmented_control(key="launch_strategy").set_value("one_device").run()
    assert launch.number_input(key="launch_logical_devices").value == 0
    assert "Replicas per worker" not in labels(launch)


def test_multi_worker_asks_for_workers(launch: AppTest) -> None:
    launch.segmented_control(key="launch_strategy").set_value("multi_worker_mirrored").run()

    assert launch.number_input(key="launch_workers").value == 2
    assert "--set workers=2" in launch.code[0].value


def test_a_refusal_stands_beside_its_field_and_start_waits(launch: AppTest) -> None:
    launch.segmented_control(key="launch_strategy").set_value("mirrored").run()
    launch.number_input(key="launch_global_batch_size").set_value(65).run()

    refusal = "65 does not divide by 2 replicas – give 64 or 66"
    assert sum(refusal in text.value for text in launch.text) == 2  # beside the field, and in the summary
    assert [button.disabled for button in launch.button if button.label == "Start"] == [True]


def test_tags_that_cannot_be_read_refuse_the_start(home: Settings, launch: AppTest) -> None:
    launch.text_area(key="launch_tags").set_value("team=vision\nno equals sign").run()
    assert "'no equals sign' has no '='" in words(launch)
    assert [button.disabled for button in launch.button if button.label == "Start"] == [True]

    launch.text_area(key="launch_tags").set_value("team=vision\nticket = A-1").run()
    start(launch)

    (run,) = runs(home)
    assert home.client().get_run(run["run_id"]).data.tags["tag.ticket"] == "A-1"


@pytest.mark.alone
def test_start_queues_exactly_what_the_form_says(home: Settings, launch: AppTest) -> None:
    # A server's first start imports and reads what later ones find there.
    start(launch)
    launch.number_input(key="launch_epochs").set_value(2)
    launch.number_input(key="launch_option_synthetic_examples").set_value(640)
    launch.text_input(key="launch_name").set_value("first")
    launch.selectbox(key="launch_layer_mnist_cnn_dense").set_value("/CPU:0").run()
    command = shlex.split(launch.code[0].value)

    started = time.perf_counter()
    start(launch)

    assert time.perf_counter() - started < 1.0
    (run,) = [each for each in runs(home) if each["name"] == "first"]
    from experiments.results import spec

    queued = spec(home, run["run_id"])
    assert queued == RunSpec(
        dataset="synthetic",
        dataset_options={"examples": 640},
        epochs=2,
        name="first",
        manual_placement={"dense": "/CPU:0"},
    )
    assert command[:4] == ["python", "-m", "experiments", "run"]
    assert RunSpec.from_assignments(command[5::2]) == queued
    link = next(found for found in launch.page_link if found.proto.label == "Watch the run")
    assert run["run_id"] in str(link.proto)


def test_pressing_start_again_needs_a_deliberate_step(home: Settings, launch: AppTest) -> None:
    first = next(button for button in launch.button if button.label == "Start")
    start(launch)
    assert len(runs(home)) == 1
    # The second click of a double click carries the first button's identity, which is gone.
    assert first.key not in {button.key for button in launch.button}
    assert "Start" not in {button.label for button in launch.button}

    next(button for button in launch.button if button.label == "Start the same again").click().run()
    assert len(runs(home)) == 1
    start(launch)

    assert len(runs(home)) == 2


def test_the_same_token_never_makes_two_runs(home: Settings, open_page: OpenPage) -> None:
    open_page("launch")
    from dashboard import data

    spec = RunSpec(dataset="synthetic")
    first, problems = data.submit(spec, "a" * 32)
    second, _ = data.submit(spec, "a" * 32)

    assert not problems
    assert first == second
    assert len(runs(home)) == 1


def test_another_spec_can_be_started_right_after(home: Settings, launch: AppTest) -> None:
    start(launch)
    launch.number_input(key="launch_epochs").set_value(3).run()
    start(launch)

    assert sorted(run["epochs"] for run in runs(home)) == [3, 5]


def test_a_spec_can_be_used_again(home: Settings, open_page: OpenPage) -> None:
    spec = RunSpec(
        dataset="synthetic",
        dataset_options={"examples": 1_000, "shape": "28x28x3"},
        strategy="mirrored",
        replicas=2,
        logical_devices=4,
        learning_rate=0.01,
        precision="mixed_bfloat16",
        tags={"team": "vision"},
        notes="two\nlines",
        name="again",
    )
    run_id = add_run(home, spec, RunStatus.FINISHED)

    app = open_page("launch", spec=run_id)

    assert RunSpec.from_assignments(shlex.split(app.code[0].value)[5::2]) == spec
    # Applied once: it must not undo what is changed afterwards.
    assert "spec" not in app.query_params
    app.number_input(key="launch_epochs").set_value(9).run()
    assert "epochs=9" in app.code[0].value

    # The new run knows the old one, which stays as it was.
    start(app)
    new = next(run for run in runs(home) if run["run_id"] != run_id)
    assert home.client().get_run(new["run_id"]).data.tags[Tag.RESTARTED_FROM] == run_id
    labels = [link.proto.label for link in open_page("run", run=new["run_id"], run_tab="Spec").page_link]
    assert f"Started from the spec of run {run_id[:8]}" in labels

    # What is started after it began with that run, and not with the old one.
    app.number_input(key="launch_epochs").set_value(3).run()
    start(app)
    third = next(run for run in runs(home) if run["run_id"] not in (run_id, new["run_id"]))
    assert Tag.RESTARTED_FROM not in home.client().get_run(third["run_id"]).data.tags


def test_a_run_of_an_experiment_gives_what_it_ran_and_not_whose_it_was(home: Settings, open_page: OpenPage) -> None:
    tags = {"plan": "batch_size", "team": "vision"}
    spec = RunSpec(dataset="synthetic", epochs=7, name="batch 32 CPU #3", group="batch_size 1", user="mei", tags=tags)
    app = open_page("launch")
    app.text_input(key="launch_user").set_value("ana").run()
    app.query_params["spec"] = add_run(home, spec, RunStatus.FINISHED)
    app.run()

    found = RunSpec.from_assignments(shlex.split(app.code[0].value)[5::2])
    assert found == RunSpec(dataset="synthetic", epochs=7, user="ana", tags={"team": "vision"})


@pytest.mark.parametrize("run_id", ["f" * 32, "../../x", "<b>x</b>"])
def test_using_an_unknown_spec_says_so_and_leaves_the_form(home: Settings, open_page: OpenPage, run_id: str) -> None:
    app = open_page("launch", spec=run_id)

    assert "**That run's spec cannot be used again**" in words(app)
    assert "Start" in {button.label for button in app.button}


def test_a_spec_that_asks_for_gpus_keeps_asking_where_there_are_none(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(home, RunSpec(dataset="synthetic", device="gpu", memory_growth=True))

    app = open_page("launch", spec=run_id)

    assert app.segmented_control(key="launch_device").value == "gpu"
    assert app.toggle(key="launch_memory_growth").value is True
    assert "--set device=gpu" in app.code[0].value


@pytest.mark.parametrize("name", NASTY_NAMES)
def test_a_nasty_name_is_plain_text_and_one_shell_word(launch: AppTest, name: str) -> None:
    launch.text_input(key="launch_name").set_value(name).run()

    assert name in [text.value for text in launch.text]
    assert f"name={name}" in shlex.split(launch.code[0].value)


def test_the_form_survives_a_visit_to_another_page(launch: AppTest) -> None:
    launch.text_input(key="launch_user").set_value("mei").run()

    launch.switch_page("app_pages/environment.py").run()
    launch.switch_page("app_pages/launch.py").run()

    assert launch.text_input(key="launch_user").value == "mei"
    assert launch.selectbox(key="launch_dataset").value == "synthetic"


# --- ready-made experiments --------------------------------------------------------------------------------------


@pytest.fixture
def ready_made(home: Settings, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page with the experiments, on a machine with two CPUs and no GPU."""
    monkeypatch.setattr(capacity, "of", lambda settings: Capacity(2, 0, ((2, 0),), "this machine"))
    return open_page("launch", launch_what="Ready-made experiment", launch_plan="xla")


def press(app: AppTest, label: str) -> AppTest:
    return next(button for button in app.button if button.label == label).click().run()


def test_one_run_is_what_the_page_opens_with(launch: AppTest) -> None:
    control = launch.segmented_control(key="launch_what")
    assert control.value == "One run"

    control.set_value("Ready-made experiment").run()
    assert "Start all" in {button.label for button in launch.button}

    launch.segmented_control(key="launch_what").set_value("One run").run()
    assert launch.selectbox(key="launch_dataset").value == "synthetic"


def test_the_address_names_the_experiment_which_says_what_it_runs_and_what_it_cannot(ready_made: AppTest) -> None:
    assert ready_made.selectbox(key="launch_plan").value == "xla"
    shown = words(ready_made)
    assert "What does compiling the step with XLA buy?" in shown
    assert "10 runs: 2 cases x 5 repeats" in shown
    assert "XLA on: needs 1 GPU, this machine has 0" in shown
    cases = table(ready_made, "What it runs")
    assert cases["Case"].tolist() == ["XLA off", "XLA on"]
    assert cases["Runs"].tolist() == [5, 5]
    assert ready_made.code[0].value == "python -m experiments run --plan xla"


def test_an_experiment_on_simulated_devices_is_called_a_rehearsal(ready_made: AppTest) -> None:
    ready_made.selectbox(key="launch_plan").set_value("strong_scaling").run()

    assert "**A rehearsal on simulated devices**" in words(ready_made)
    assert set(table(ready_made, "What it runs")["Device"]) == {"CPU (simulated)"}


def test_start_all_queues_every_run_once(home: Settings, ready_made: AppTest) -> None:
    ready_made.number_input(key="launch_plan_repeats_xla").set_value(2)
    ready_made.text_input(key="launch_plan_group").set_value("<b>mine</b> 'x'")
    ready_made.text_area(key="launch_plan_fields").set_value("epochs=2\n\nnotes=a; b").run()
    command = shlex.split(ready_made.code[0].value)
    first = next(button for button in ready_made.button if button.label == "Start all")
    press(ready_made, "Start all")

    queued = runs(home)
    assert sorted(run["name"] for run in queued) == ["XLA off #1", "XLA off #2", "XLA on #1", "XLA on #2"]
    assert {(run["group"], run["epochs"]) for run in queued} == {("<b>mine</b> 'x'", 2)}
    assert command[5:] == ["xla", "--repeats", "2", "--group", "<b>mine</b> 'x'", "--set", "epochs=2", *command[-2:]]
    assert command[-2:] == ["--set", "notes=a; b"]
    assert "**4 runs queued**" in words(ready_made)
    link = next(found for found in ready_made.page_link if found.proto.label == "Watch the runs")
    assert "runs_group" in str(link.proto)
    # The second click of a double click carries the first button's identity, which is gone.
    assert first.key not in {button.key for button in ready_made.button}

    press(ready_made, "Start the same again")
    assert len(runs(home)) == 4
    press(ready_made, "Start all")
    assert len(runs(home)) == 8


def test_a_group_among_the_fields_is_the_group(home: Settings, ready_made: AppTest) -> None:
    ready_made.text_area(key="launch_plan_fields").set_value("group=mine").run()
    press(ready_made, "Start all")
    assert {run["group"] for run in runs(home)} == {"mine"}


def test_the_same_token_never_makes_two_sets_and_completes_one(home: Settings, ready_made: AppTest) -> None:
    from dashboard import data

    offered = data.plan_offer(data.plans()["xla"], {})
    first, problems = data.submit_plan(offered, "g", 1, "a" * 32)
    again, _ = data.submit_plan(offered, "g", 2, "a" * 32)

    assert not problems
    assert set(first) < set(again)
    assert (len(first), len(again), len(runs(home))) == (2, 4, 4)


def test_a_plan_that_is_refused_half_way_says_what_is_queued(
    home: Settings, ready_made: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = queue.submit

    def once(settings: Settings, spec: RunSpec, submission: str) -> str:
        if runs(home):
            raise SpecError([Problem("device", "cpu", "is not there any more", "wait for the node")])
        return submit(settings, spec, submission)

    monkeypatch.setattr(queue, "submit", once)
    ready_made.number_input(key="launch_plan_repeats_xla").set_value(1).run()
    press(ready_made, "Start all")
    assert "1 run of 2 queued: Start all queues the rest." in words(ready_made)
    assert "is not there any more" in words(ready_made)

    monkeypatch.setattr(queue, "submit", submit)
    press(ready_made, "Start all")
    assert "**2 runs queued**" in words(ready_made)
    assert len({run["group"] for run in runs(home)}) == 1
    assert len(runs(home)) == 2


def test_a_group_that_somebody_else_took_meanwhile_is_not_taken_again(home: Settings, ready_made: AppTest) -> None:
    suggested = ready_made.text_input(key="launch_plan_group").placeholder
    add_run(home, RunSpec(group=suggested))
    ready_made.number_input(key="launch_plan_repeats_xla").set_value(1).run()
    press(ready_made, "Start all")

    assert [run["group"] for run in runs(home)].count(suggested) == 1


def test_an_unnamed_group_is_made_once_for_each_start(home: Settings, ready_made: AppTest) -> None:
    suggested = ready_made.text_input(key="launch_plan_group").placeholder
    ready_made.number_input(key="launch_plan_repeats_xla").set_value(1).run()
    press(ready_made, "Start all")
    press(ready_made, "Start the same again")
    press(ready_made, "Start all")

    groups = sorted(run["group"] for run in runs(home))
    assert groups[:2] == [suggested] * 2
    assert len(set(groups)) == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("epoch=2", "did you mean epochs?"),
        ("epochs", "write field=value"),
        ("epochs=0", "epochs=0 is too small: give at least 1"),
    ],
)
def test_fields_that_make_no_run_refuse_the_start(ready_made: AppTest, typed: str, said: str) -> None:
    ready_made.text_area(key="launch_plan_fields").set_value(typed).run()

    assert said in words(ready_made)
    assert [button.disabled for button in ready_made.button if button.label == "Start all"] == [True]
