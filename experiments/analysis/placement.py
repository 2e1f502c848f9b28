"""Where ops ran: counts by device and type, asked against actual, and what moved between two runs.

Input is the placement table, one row a distinct op: PLACEMENT_COLUMNS. Made for 200,000 rows: strings are looked at
once each, everything else is counting.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

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
    codes, found = pd.factorize(devices)
    names = np.array([str(name).rpartition("/")[2].partition(":")[0] for name in found], dtype=object)
    return pd.Series(names[codes], index=devices.index, dtype="str")


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
    folder, _, own = name.rpartition("/")
    return _joined(_normal_folder(folder), _normal_own(own)) or own


def _joined(folder: str, own: str) -> str:
    return f"{folder}/{own}" if folder and own else folder or own


def _normal_folder(folder: str) -> str:
    outer, _, inner = folder.rpartition("/")
    return _joined(_normal_scopes(outer), _normal_own(inner))


@functools.lru_cache(maxsize=100_000)
def _normal_scopes(scopes: str) -> str:
    return "/".join(filter(None, map(_normal_part, scopes.split("/"))))


def _normal_own(part: str) -> str:
    if _AROUND.fullmatch(part):
        return ""
    return _TRACED.sub(r"\1", part) if part.startswith("__") else part


# Scopes come back in many folders; own names of ops do not, and remembering them would only fill the memory.
_normal_part = functools.lru_cache(maxsize=100_000)(_normal_own)


def _shared_names(rows: pd.DataFrame) -> tuple[np.ndarray, pd.Series]:
    """Of each row the number of the name that both runs share, and the names.

    Scopes get other numbers in other graphs (`sequential_1/conv2d_1` for the layer conv2d), so an op of a known layer
    is found by layer and own name, any other by its normal name. An eager op has none, so it shares the empty one.
    """
    # Ops share folders and own names with others. Arrow takes names apart and joins them; each part is looked at once.
    names = pa.Table.from_pandas(rows[["name"]], preserve_index=False)["name"].combine_chunks().cast(pa.large_string())
    split = pc.split_pattern(names, "/", max_splits=1, reverse=True)
    ends, has_folder = np.asarray(split.offsets)[1:], np.diff(split.offsets) == 2
    own = split.values.take(pa.array(ends - 1)).dictionary_encode()
    folder = split.values.take(pa.array(ends - 2, mask=~has_folder)).fill_null("").dictionary_encode()
    layer, layers = pd.factorize(rows["layer"])
    in_layer = (rows["layer"] != "").to_numpy(dtype=bool)
    backward = pc.match_substring(names, "gradient_tape").to_numpy(zero_copy_only=False)
    places = [f"gradient_tape/{each}/" for each in layers] + [f"{each}/" for each in layers]
    places += [f"{_normal_folder(each)}/".lstrip("/") for each in folder.dictionary.to_pylist()]
    place = np.where(in_layer, layer + len(layers) * ~backward, np.asarray(folder.indices) + 2 * len(layers))
    owns = own.dictionary.to_pylist()
    last = np.asarray(own.indices) + len(owns) * ~in_layer
    parts = (
        pa.array(texts, pa.large_string()).take(pa.array(numbers))
        for texts, numbers in ((places, place), (owns + list(map(_normal_own, owns)), last))
    )
    shared = pc.utf8_rtrim(pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string())), "/")
    shared = pc.if_else(pc.equal(shared, ""), own.dictionary_decode(), shared).dictionary_encode()
    return np.asarray(shared.indices), shared.dictionary.to_pandas().astype("str")


def _places(op: np.ndarray, device: np.ndarray, names: list[str], ops: int) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Where each op, the same on every replica, ran.

    Args:
        op, device: of each row the op's and the device's number.
        names: of the devices, sorted.
        ops: how many there are; one without a row is nowhere.

    Returns:
        Of each op the number of a text, the texts, and how many devices each op is on.
    """
    pairs = np.sort(op * len(names) + device)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    owner, where = np.divmod(pairs, max(len(names), 1))
    counts = np.bincount(owner, minlength=ops)
    ends = counts.cumsum()
    texts, number = ["", *names], np.zeros(ops, dtype=np.int64)
    number[counts == 1] = where[ends[counts == 1] - 1] + 1
    known: dict[bytes, int] = {}
    for each in np.flatnonzero(counts > 1):
        devices = where[ends[each] - counts[each] : ends[each]]
        key = devices.tobytes()
        if key not in known:
            known[key] = len(texts)
            texts.append(", ".join(names[device] for device in devices))
        number[each] = known[key]
    return number, texts, counts


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
        DIFF_COLUMNS, ops that moved first. `change` is `moved` (another kind of device), `same kind` (other,
        fewer or more devices of the same kind), `only in first`, `only in second` or `same`; `from` and `to` list
        devices, and `replicas_...` counts them.

    Raises:
        ValueError: a frame that is no placement table.
    """
    check(first)
    check(second)
    rows = pd.concat([first, second], ignore_index=True)
    # Plain numbers for all that is compared: an op is a (name, type, role), numbered as they appear.
    name, names = _shared_names(rows)
    op = name.astype(np.int64)
    for column in ("op_type", "role"):
        codes, found = pd.factorize(rows[column])
        op = op * len(found) + codes
    op, ops = pd.factorize(op)
    heads = np.flatnonzero(~pd.Series(op).duplicated())
    device, devices = pd.factorize(rows["device"], sort=True)
    sides = slice(len(first)), slice(len(first), None)
    (before, old, on_before), (after, new, on_after) = (
        _places(op[side], device[side], list(devices), len(ops)) for side in sides
    )
    pair, pairs = pd.factorize(before * len(new) + after)
    change = np.array(
        [CHANGES.index(_change(old[each // len(new)], new[each % len(new)])) for each in pairs], dtype=int
    )[pair]
    order = np.argsort(change, kind="stable")
    shown = rows[["op_type", "layer", "role"]].iloc[heads[order]].reset_index(drop=True)

    def texts(values: Sequence[str] | pd.Series, numbers: np.ndarray) -> pd.Series:
        return pd.Series(values, dtype="str").take(numbers[order]).reset_index(drop=True)

    called = texts(names, name[heads])
    return shown.assign(
        change=texts(CHANGES, change),
        name=called.where(called != "", "(" + shown["op_type"] + ")"),
        **{"from": texts(old, before), "to": texts(new, after)},
        replicas_from=on_before[order],
        replicas_to=on_after[order],
    )[list(DIFF_COLUMNS)].astype(DIFF_COLUMNS)


CHANGES = ("moved", "only in first", "only in second", "same kind", "same")


def _change(before: str, after: str) -> str:
    if not before:
        return "only in second"
    if not after:
        return "only in first"
    if before == after:
        return "same"
    return "same kind" if _kinds_of(before) == _kinds_of(after) else "moved"


def _kinds_of(devices: str) -> frozenset[str]:
    return frozenset(device.rpartition("/")[2].partition(":")[0] for device in devices.split(", "))


def moves(differences: pd.DataFrame) -> pd.DataFrame:
    """The diff in short: [change, from, to, ops], ops that moved first."""
    counted = differences.groupby(["change", "from", "to"], sort=False, observed=True).size().rename("ops")
    return counted.reset_index()
