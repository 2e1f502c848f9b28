"""Where ops ran: counts by device and type, asked against actual, and what moved between two runs.

Input is the placement table, one row a distinct op: PLACEMENT_COLUMNS. Made for 200,000 rows: strings are looked at
once each, everything else is counting.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from training.names import PLACEMENT_COLUMNS

COMPUTE = "compute"
# Replicas, loops and function bodies around an op's own scopes, and the numbers of traced functions: these differ from
# run to run, and between replicas of one run, for one and the same op. gradient_tape stays: it tells an op of the
# backward pass from that of the forward pass.
_AROUND = re.compile(
    r"(?:replica(?:_\d+)?|while(?:_\d+)?|cond(?:_\d+)?|body|branches|true_fn|false_fn|_\d+"
    r"|(?:Stateful|Stateless)?PartitionedCall(?:_\d+)?|(?:Stateless)?(?:While|If)(?:_\d+)?)"
)
_TRACED = re.compile(r"(__(?:inference|forward|backward)_\w*?)(?:_\d+)+$")


def check(table: pd.DataFrame) -> None:
    """Refuses a frame that is no placement table, with a ValueError."""
    missing = [name for name in PLACEMENT_COLUMNS if name not in table]
    if missing:
        raise ValueError(f"no placement table: column {missing[0]} is missing")


def kinds(devices: pd.Series) -> pd.Series:
    """`CPU:0` -> `CPU`, `worker:1/GPU:0` -> `GPU`."""
    names = devices.astype("str")
    unique = {name: name.rpartition("/")[2].partition(":")[0] for name in names.unique()}
    return names.map(unique)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Ops per role, device and type.

    Args:
        table: PLACEMENT_COLUMNS.

    Returns:
        [role, device, op_type, ops, count]: distinct ops, and times the log named them; most ops first. Compute and
        input are apart: an input op on the CPU is where it belongs.

    Raises:
        ValueError: a frame that is no placement table.
    """
    check(table)
    grouped = table.groupby(["role", "device", "op_type"], sort=False, observed=True)
    counted = grouped.agg(ops=("name", "size"), count=("count", "sum")).reset_index()
    return counted.sort_values(["role", "ops"], ascending=[True, False], kind="stable").reset_index(drop=True)


def per_device(table: pd.DataFrame) -> pd.DataFrame:
    """Ops per role and device, as shares of the role's ops: [role, device, ops, share]."""
    check(table)
    counted = table.groupby(["role", "device"], sort=True, observed=True).size().rename("ops").reset_index()
    counted["share"] = counted["ops"] / counted.groupby("role")["ops"].transform("sum")
    return counted


def asked_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Layer -> device as a run was asked to place them; empty for one that placed none.

    Args:
        record: `spec` and `params` count; a param may be shortened, and is read where there is no spec only.
    """
    spec = record.get("spec")
    try:
        params = json.loads(record["params"].get("manual_placement") or "{}")
    except (ValueError, RecursionError):
        params = {}
    found = spec.get("manual_placement") if isinstance(spec, dict) else params
    return {str(layer): str(device) for layer, device in found.items()} if isinstance(found, dict) else {}


def asked_and_actual(table: pd.DataFrame, asked: dict[str, str]) -> pd.DataFrame:
    """For layers that were placed by hand: where they should have run and where they did.

    Soft placement moves an op without a word when its device is not there (tensorflow/tensorflow#29342).

    Args:
        table: PLACEMENT_COLUMNS.
        asked: layer -> device, such as {"conv2d": "/GPU:1"}.

    Returns:
        [layer, asked, actual, ops, elsewhere, agrees]: devices that the layer's compute ops ran on, in order of
        numbers of ops; how many there are and how many ran elsewhere. `agrees` is False for a layer without any op:
        nothing shows that it ran as asked.
    """
    check(table)
    rows = []
    compute = table[table["role"] == COMPUTE]
    for layer, device in asked.items():
        wanted = device.strip("/")
        counts = compute.loc[compute["layer"] == layer, "device"].value_counts()
        elsewhere = int(sum(number for name, number in counts.items() if str(name).rpartition("/")[2] != wanted))
        total = int(counts.sum())
        rows.append((layer, wanted, ", ".join(map(str, counts.index)), total, elsewhere, total > 0 and elsewhere == 0))
    names = {"layer": "str", "asked": "str", "actual": "str", "ops": "int64", "elsewhere": "int64", "agrees": "bool"}
    return pd.DataFrame(rows, columns=list(names)).astype(names)


def normal_name(name: str) -> str:
    """An op's name without what differs between replicas, runs and traces of the same function.

    `while/body/_1/while/replica_1/sequential_1/dense/MatMul` -> `sequential_1/dense/MatMul`;
    `__inference_run_steps_1234` -> `__inference_run_steps`.
    """
    parts = [part for part in map(_normal_part, name.split("/")) if part]
    return "/".join(parts) or name.rpartition("/")[2]


@functools.lru_cache(maxsize=100_000)
def _normal_part(part: str) -> str:
    if _AROUND.fullmatch(part):
        return ""
    return _TRACED.sub(r"\1", part) if part.startswith("__") else part


@dataclass
class _Place:
    """Where one op of the model, the same on every replica, ran."""

    layer: str
    devices: list[str]

    def text(self) -> str:
        return ", ".join(sorted(self.devices))


_Key = tuple[str, str, str]


def _places(table: pd.DataFrame) -> dict[_Key, _Place]:
    """(name, type, role) that both runs share -> the devices it is on.

    Scopes get other numbers in other graphs (`sequential_1/conv2d_1` for the layer conv2d), so an op of a known layer
    is found by layer and own name, any other by its normal name. Eager ops have no name: their type is all there is.
    """
    found: dict[_Key, _Place] = {}
    columns = (table[name].to_list() for name in ("name", "op_type", "role", "layer", "device"))
    for name, op_type, role, layer, device in zip(*columns, strict=True):
        if layer:
            pass_ = "gradient_tape/" if "gradient_tape" in name else ""
            key = f"{pass_}{layer}/{name.rpartition('/')[2]}"
        else:
            key = normal_name(name) or f"({op_type})"
        place = found.get((key, op_type, role))
        if place is None:
            found[key, op_type, role] = _Place(layer, [device])
        elif device not in place.devices:
            place.devices.append(device)
    return found


DIFF_COLUMNS = {
    "change": "str",
    "name": "str",
    "op_type": "str",
    "layer": "str",
    "role": "str",
    "from": "str",
    "to": "str",
    "replicas_from": "int64",
    "replicas_to": "int64",
}


def diff(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Op by op, what moved between two runs.

    Args:
        first, second: placement tables, PLACEMENT_COLUMNS.

    Returns:
        DIFF_COLUMNS, ops that moved first. `change` is `moved` (another kind of device), `replicated` (the same kind,
        on other or more devices), `only in first`, `only in second` or `same`; `from` and `to` list devices, and
        `replicas_...` counts them.

    Raises:
        ValueError: a frame that is no placement table.
    """
    check(first)
    check(second)
    before, after = _places(first), _places(second)
    nowhere = _Place("", [])
    rows = []
    for key in before | after:
        old, new = before.get(key, nowhere), after.get(key, nowhere)
        name, op_type, role = key
        places = old.text(), new.text()
        counts = len(old.devices), len(new.devices)
        rows.append((_change(*places), name, op_type, old.layer or new.layer, role, *places, *counts))
    rows.sort(key=lambda row: CHANGES.index(row[0]))
    return pd.DataFrame(rows, columns=list(DIFF_COLUMNS)).astype(DIFF_COLUMNS)


CHANGES = ("moved", "only in first", "only in second", "replicated", "same")


@functools.lru_cache(maxsize=10_000)
def _change(before: str, after: str) -> str:
    if not before:
        return "only in second"
    if not after:
        return "only in first"
    if before == after:
        return "same"
    return "replicated" if _kinds_of(before) == _kinds_of(after) else "moved"


def _kinds_of(devices: str) -> frozenset[str]:
    return frozenset(device.rpartition("/")[2].partition(":")[0] for device in devices.split(", "))


def moves(differences: pd.DataFrame) -> pd.DataFrame:
    """The diff in short: [change, from, to, ops], ops that moved first."""
    counted = differences.groupby(["change", "from", "to"], sort=False, observed=True).size().rename("ops")
    return counted.reset_index()
