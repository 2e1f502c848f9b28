"""Numbers in words."""

from experiments.wording import count


def test_one_and_many() -> None:
    assert [count(number, "run") for number in (0, 1, 1_500)] == ["0 runs", "1 run", "1,500 runs"]
    assert count(2, "entry", "entries") == "2 entries"
