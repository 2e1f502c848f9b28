"""What is written to a journal is what a reader gets, whatever happens in between."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.names import Metric, Phase, RunStatus
from training.worker.journal import Journal, JournalReader


def test_every_kind_of_event(tmp_path):
    journal = Journal(tmp_path / "worker-0" / "journal.jsonl")
    reader = JournalReader(tmp_path / "worker-0" / "journal.jsonl")
    journal.phase(Phase.TRAINING)
    journal.metrics({Metric.LOSS: math.nan, "accuracy": 0.5}, 3)
    journal.series(Metric.WINDOW, [(1, 2.0, 3.0)])
    journal.tags({"a": "b"})
    journal.params({"p": 1})
    journal.dataset({"name": "digits", "shape": (28, 28, 1)})
    journal.joined()
    journal.end(RunStatus.FAILED, "why")
    events = reader.new_events()
    contents = [{name: value for name, value in event.items() if name != "t"} for event in events]
    assert math.isnan(contents[1]["values"].pop(Metric.LOSS))
    assert contents == [
        {"type": "phase", "phase": "training"},
        {"type": "metrics", "values": {"accuracy": 0.5}, "step": 3},
        {"type": "series", "name": Metric.WINDOW, "points": [[1, 2.0, 3.0]]},
        {"type": "tags", "values": {"a": "b"}},
        {"type": "params", "values": {"p": "1"}},
        {"type": "dataset", "facts": {"name": "digits", "shape": [28, 28, 1]}},
        {"type": "joined"},
        {"type": "end", "status": "FAILED", "reason": "why"},
    ]
    assert reader.new_events() == []


def test_reader_of_nothing(tmp_path):
    assert JournalReader(tmp_path / "missing.jsonl").new_events() == []


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), max_size=8), st.floats(0, 1))
def test_any_cut_of_the_file_loses_and_repeats_nothing(tmp_path_factory, texts, part):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal = Journal(path)
    for text in texts:
        journal.end(RunStatus.FAILED, text)
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: round(part * len(whole))])
    first = JournalReader(path)
    events = first.new_events()
    path.write_bytes(whole)
    events += JournalReader(path, first.offset).new_events()
    assert [event["reason"] for event in events] == texts


def test_writer_that_follows_a_killed_one(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"type":"joi')
    Journal(path).joined()
    assert [event["type"] for event in JournalReader(path).new_events()] == ["unreadable", "joined"]


def test_lines_that_are_no_events(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b'[]\n{"type":"end","t":1.0,"status":"SLEEPING","reason":""}\n{"type":"series","t":1.0}\n\xff\n'
        b'{"type":"new","t":1.0}\n'
    )
    assert [event["type"] for event in JournalReader(path).new_events()] == ["unreadable"] * 5


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"joined","t":NaN}',
        '{"type":"joined","t":1e300}',
        '{"type":"metrics","t":1.0,"values":{"loss":null},"step":0}',
        '{"type":"metrics","t":1.0,"values":{"loss":"0.5"},"step":0}',
        '{"type":"metrics","t":1.0,"values":{"loss":0.5},"step":1000000000000000000000000000000}',
        '{"type":"series","t":1.0,"name":"throughput/window","points":[[1,2.0]]}',
        '{"type":"series","t":1.0,"name":"throughput/window","points":[[1,2.0,null]]}',
        '{"type":"tags","t":1.0,"values":{"notice":null}}',
        '{"type":"params","t":1.0,"values":{"p":3}}',
        "[" * 100_000,
    ],
)
def test_a_line_with_a_wrong_value_inside_is_no_event(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(line + '\n{"type":"metrics","t":1.0,"values":{"loss":NaN,"accuracy":1},"step":0}\n')
    assert [event["type"] for event in JournalReader(path).new_events()] == ["unreadable", "metrics"]
