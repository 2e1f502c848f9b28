"""The door to the analyses: what has ended is read once, within bounds, and the verdict of a run is there."""

import pytest

from dashboard import analyses, report_content
from experiments import questions, results
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import words
from tests.dashboard.seed import GPU_SEEN, SEEN, add_run, add_timed, cpu_and_gpu, timed
from training.names import RunStatus, Tag
from training.spec import RunSpec


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The run ids of each read of histories."""
    calls: list[list[str]] = []
    read = results.histories

    def counted(settings, run_ids, metrics=None):
        calls.append(list(run_ids))
        return read(settings, run_ids, metrics)

    monkeypatch.setattr(results, "histories", counted)
    return calls


def test_a_history_is_read_once(home: Settings, asked: list[list[str]]) -> None:
    first, second, third = (add_timed(home, RunSpec(), 5_000, seed=n) for n in range(3))
    kept = analyses.Histories(home)

    assert set(kept.of([first, second])["run_id"]) == {first, second}
    again = kept.of([second, third, second])

    assert asked == [[first, second], [third]]
    assert again["run_id"].drop_duplicates().tolist() == [second, third]
    assert kept.of([third]).equals(results.histories(home, [third]))


def test_the_longest_unused_is_forgotten(home: Settings, asked: list[list[str]]) -> None:
    first, second = (add_timed(home, RunSpec(), 5_000, seed=n) for n in range(2))
    one = len(results.histories(home, [first]))
    kept = analyses.Histories(home, most=one + 1)
    asked.clear()

    kept.of([first])
    kept.of([second])
    kept.of([second])
    kept.of([first])

    assert asked == [[first], [second], [], [first]]


def test_the_second_look_at_a_page_reads_no_history(
    home: Settings, open_page: OpenPage, asked: list[list[str]]
) -> None:
    ids = cpu_and_gpu(home)
    app = open_page("speedup")
    assert sorted(asked[0]) == sorted([*ids["cpu"], *ids["gpu"]])
    asked.clear()

    app.run()
    open_page("speedup", baseline=ids["gpu"][0])

    assert [run_id for call in asked for run_id in call] == []


def test_a_run_says_where_its_time_went_and_what_is_doubtful(home: Settings, open_page: OpenPage) -> None:
    run_id = add_timed(home, RunSpec(strategy="mirrored", replicas=2, logical_devices=2, epochs=3), 5_000)

    said = words(open_page("run", run=run_id))

    assert "**Where the time went**" in said
    assert "waiting for input 0.0%" in said
    assert "Timing doubtful: 2 simulated replicas share the same hardware" in said


def test_a_run_too_short_to_time_says_so(home: Settings, open_page: OpenPage) -> None:
    run_id = add_run(
        home, RunSpec(epochs=1), points=timed(5_000, epochs=1, startup=9.0), tags={**GPU_SEEN, "replicas_in_sync": "1"}
    )

    said = words(open_page("run", run=run_id))

    assert "Timing doubtful: no steady-state epoch: 1 of at least 2 epochs finished" in said


def test_a_page_a_command_and_a_report_say_the_same_of_a_run(home: Settings, open_page: OpenPage) -> None:
    for workers, batch, rate in ((1, 64, 5_000), (2, 128, 6_000)):
        strategy = "multi_worker_mirrored" if workers > 1 else "one_device"
        group = "mine" if workers > 1 else "elsewhere"
        spec = RunSpec(
            strategy=strategy, workers=workers, cpu_threads=1, epochs=3, global_batch_size=batch, group=group
        )
        run_id = add_timed(home, spec, rate)
    said = questions.judgement(home, run_id).verdict
    assert said is not None
    assert said.cause == "synchronising"

    page = open_page("run", run=run_id)
    report = report_content.content(home, "mine")

    sentence = said.sentence()
    assert sentence[:1].upper() + sentence[1:] in [text.value for text in page.text]
    assert report.verdicts["where the time went"].tolist() == [sentence]


def test_a_run_that_was_stopped_has_the_same_verdict_everywhere(home: Settings, open_page: OpenPage) -> None:
    spec = RunSpec(epochs=9, group="mine")
    run_id = add_run(home, spec, RunStatus.KILLED, points=timed(5_000), tags={**SEEN, "replicas_in_sync": "1"})
    sentence = questions.judgement(home, run_id).sentence()
    assert sentence.endswith(" (the run was cut short: KILLED)")

    page = open_page("run", run=run_id)
    report = report_content.content(home, "mine")

    assert sentence[:1].upper() + sentence[1:] in [text.value for text in page.text]
    assert report.verdicts["where the time went"].tolist() == [sentence]
    (unknown,) = report.unchecked[report.unchecked.iloc[:, 0].str.startswith("profiler on")].to_numpy().tolist()
    assert unknown == ["profiler on (profiler)", "all"]
    assert any("profiler on (profiler)" in text.value for text in page.text)


def test_that_versions_of_the_product_differ_is_said_everywhere(home: Settings, open_page: OpenPage) -> None:
    for device, commit in (("cpu", "a" * 40), ("gpu", "b" * 40)):
        add_timed(
            home, RunSpec(device=device, group="mine", epochs=3), 5_000, startup=4.0, seed=0, **{Tag.GIT_COMMIT: commit}
        )
    said = "different versions of Speedup Lab: aaaaaaaaa / bbbbbbbbb"

    assert f"To know: {said}" in words(open_page("speedup"))
    (section,) = report_content.content(home, "mine").speedups
    assert said in section.lines
