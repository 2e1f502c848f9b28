"""What MLflow takes in one value and in one request, and how to keep within it. Imports no MLflow.

The limits are those of MLflow 3.17.2 (mlflow/utils/validation.py); a test compares them with the installed ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LONGEST_PARAM = 6_000
LONGEST_TAG = 8_000
LONGEST_DIGEST = 36
LONGEST_DATASET_NAME = 500
MOST_ITEMS = 1_000
MOST_PARAMS = 100
MOST_TAGS = 100
MOST_BYTES = 500_000
"""Half of what MLflow accepts in one request, since the size is estimated."""


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric. `timestamp` is in milliseconds: MLflow takes an equal point only once."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class ParamItem:
    """One param."""

    key: str
    value: str


@dataclass(frozen=True)
class TagItem:
    """One tag."""

    key: str
    value: str


Item = MetricPoint | ParamItem | TagItem


def shorten_params(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Params that MLflow accepts, and a notice for each that had to be shortened.

    Whoever shortens one also keeps all of them at full length as the artifact `names.Artifact.PARAMS`.
    """
    notices = [
        f"param {key} has {len(value):,} characters: the first {LONGEST_PARAM:,} are kept here, all in params.json"
        for key, value in values.items()
        if len(value) > LONGEST_PARAM
    ]
    return {key: storable(value)[:LONGEST_PARAM] for key, value in values.items()}, notices


def storable(value: str) -> str:
    """A text that every store can hold: no NUL (PostgreSQL) and no half of a surrogate pair (SQLite)."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def shorten_tag(value: str) -> str:
    """A tag's value as MLflow accepts it."""
    value = storable(value)
    return value if len(value) <= LONGEST_TAG else value[: LONGEST_TAG - 1] + "…"


def requests(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Cuts items into lists that each fit into one request, in order."""
    batch: list[Item] = []
    params = tags = size = 0
    for item in items:
        is_param, is_tag, item_size = isinstance(item, ParamItem), isinstance(item, TagItem), _size(item)
        full = (
            len(batch) == MOST_ITEMS
            or params + is_param > MOST_PARAMS
            or tags + is_tag > MOST_TAGS
            or size + item_size > MOST_BYTES
        )
        if batch and full:
            yield batch
            batch, params, tags, size = [], 0, 0, 0
        batch.append(item)
        params, tags, size = params + is_param, tags + is_tag, size + item_size
    if batch:
        yield batch


def _size(item: Item) -> int:
    if isinstance(item, MetricPoint):
        return 120 + len(item.key)
    return 40 + len(item.key) + len(json.dumps(item.value))
