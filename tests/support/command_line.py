"""What a command did, and what a refusal looks like."""

import json
import typing
from collections.abc import Callable


class Answer:
    """What one command did."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> typing.Any:
        """The one JSON document on stdout."""

        def refuse(name: str) -> None:
            raise ValueError(f"{name} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


Run = Callable[..., Answer]


def refused(answer: Answer, *words: str) -> None:
    """Asserts exit code 2, nothing on stdout and one line on stderr with these words."""
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert answer.err.startswith("python -m experiments: ")
    assert answer.err.count("\n") == 1
    for word in words:
        assert word in answer.err
