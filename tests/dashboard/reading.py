"""Reads a page as a person does: its words and its tables."""

import json
import typing

from streamlit.testing.v1 import AppTest


def words(app: AppTest) -> str:
    """All texts of a page, for the question whether something is said at all."""
    parts: list[str] = []
    for kind in ("title", "subheader", "markdown", "caption", "text", "error", "warning", "info", "success", "code"):
        parts += [str(getattr(element, "value", "")) for element in app.get(kind)]
    parts += [str(found.proto.body) for found in app.get("html") if not found.proto.body.startswith("<style")]
    return "\n".join(parts)


def table(app: AppTest, alt: str) -> typing.Any:
    """The table with this accessible name, as a frame."""
    return next(found.value for found in app.dataframe if found.proto.alt == alt)


def charts(app: AppTest) -> list[dict[str, typing.Any]]:
    """The Plotly figures of a page, in order."""
    return [json.loads(found.proto.spec) for found in app.get("plotly_chart")]
