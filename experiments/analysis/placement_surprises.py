"""Ops of a GPU run that are on the CPU and could be expected on a GPU."""

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from experiments.analysis.placement import COMPUTE, check, kinds, normal_name

COLUMNS = ["name", "op_type", "layer", "device", "why", "on_gpu", "of"]
APART, WHOLE, LIKE = "apart from its layer", "whole layer", "no layer, apart from its like"

# What TensorFlow keeps on the host, or may keep there at no cost: sizes and shapes (int32, whose GPU kernels work in
# host memory; see a kernel's host_memory_arg), constants, control flow, handles, arguments and results of functions.
_HOST = re.compile(
    r"Shape|ShapeN|Size|Rank|VariableShape|Range|StridedSlice|Pack|Unpack|Prod|FloorDiv|FloorMod|ConcatOffset"
    r"|BroadcastArgs|BroadcastGradientArgs|InvertPermutation|DynamicStitch|Const|HostConst|Identity|IdentityN|NoOp"
    r"|Assert|(?:Ref)?(?:Switch|Merge|Enter|Exit|NextIteration)|LoopCond|ControlTrigger|(?:Stateless)?(?:If|Case|While)"
    r"|(?:Stateful)?PartitionedCall|SymbolicGradient|VarHandleOp|VarIsInitializedOp|IsVariableInitialized"
    r"|DestroyResourceOp|DisableCopyOnRead|StatelessRandomGet\w+|RngSkip"
)
# Internal nodes; texts, tables, files, summaries and Python, which have no kernel for a GPU; lists of tensors.
_HOST_FAMILY = re.compile(
    r"_|TensorArray|TensorList|Stack|Mutex|String|Unicode|Regex|StaticRegex|AsString|Lookup|HashTable|MutableHashTable"
    r"|Anonymous|Save|Restore|MergeV2Checkpoints|ShardedFilename|ReadFile|Write|Print|PyFunc|EagerPyFunc|Decode|Encode"
)
_UPDATE = re.compile(r"Assign(?:Add|Sub)?VariableOp|Resource(?:Sparse)?Apply")
_READ = "ReadVariableOp"
# Scopes of the loop, not of anything in it.
_LOOP = frozenset({"gradient_tape", "then", "else"})


def surprises(table: pd.DataFrame, device: str, asked: Mapping[str, str]) -> pd.DataFrame:
    """Ops that are on the CPU in a GPU run, unasked, while their like are on a GPU.

    Args:
        table: PLACEMENT_COLUMNS.
        device: what the run asked for, `cpu` or `gpu`. A CPU run has none.
        asked: layer -> device, as `experiments.analysis.placement.asked_of` gives it. A layer that was placed on the
            CPU by hand is no surprise there.

    Returns:
        [name, op_type, layer, device, why, on_gpu, of]. `why` is APART (other ops of the layer are on a GPU; `on_gpu`
        of `of` ops of the layer), WHOLE (none is, but ops of other layers are; 0 of `of`) or LIKE (no layer, such as
        an optimizer's updates; `on_gpu` of `of` ops of this type). In this order, mostly on the GPU first.

    What it cannot tell: the log has no dtypes, so op types that mostly do int32 shape math are left out wherever they
    are, and so is what TensorFlow keeps on the host (`_HOST`). An op without a layer is judged only inside a scope
    (`adam/...`): a loop's own counting is not; only when its type is on a GPU too, or, if it updates a variable, when
    a layer's variables are; and not at all when a layer was placed on the CPU by hand, for the updates of that
    layer's variables belong there and no name tells whose they are. Eager ops have no name, and are not judged.
    """
    check(table)
    if device.lower() != "gpu" or table.empty:
        return pd.DataFrame(columns=COLUMNS)
    kind, layer = kinds(table["device"]), table["layer"]
    held, by_hand = _each(table["op_type"], _is_held), _each(layer, _on_cpu(asked))
    judged = (table["role"] == COMPUTE) & (table["source"] == "graph") & ~held
    rows = table.assign(cpu=judged & (kind == "CPU"), gpu=judged & (kind == "GPU"))
    of_a_layer = judged & (layer != "") & ~by_hand
    parts = [_of_layers(rows, of_a_layer)]
    if not any(map(_on_cpu(asked), asked)):
        variables_on_gpu = bool((rows["gpu"] & of_a_layer & (rows["op_type"] == _READ)).any())
        parts.append(_without_layer(rows, judged, variables_on_gpu))
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _each(texts: pd.Series, question: Callable[[str], bool]) -> np.ndarray:
    """The answer for every row, asked once for each different text."""
    codes, found = pd.factorize(texts)
    return np.array([question(text) for text in found], dtype=bool)[codes]


def _on_cpu(asked: Mapping[str, str]) -> Callable[[str], bool]:
    return lambda layer: asked.get(layer, "").strip("/").rpartition("/")[2].startswith("CPU")


@functools.lru_cache(maxsize=4096)
def _is_held(op_type: str) -> bool:
    return bool(_HOST.fullmatch(op_type) or _HOST_FAMILY.match(op_type))


def _among(rows: pd.DataFrame, chosen: pd.Series, by: str, wanted: pd.Series) -> pd.DataFrame:
    """The wanted rows, and of the chosen ones with the same `by`, how many are on a GPU, of how many."""
    codes, found = pd.factorize(rows[by])
    of = np.bincount(codes[chosen], minlength=len(found))
    on_gpu = np.bincount(codes[chosen & rows["gpu"]], minlength=len(found))
    codes = codes[wanted]
    return rows[wanted].assign(on_gpu=on_gpu[codes], of=of[codes], share=on_gpu[codes] / of[codes])


def _of_layers(rows: pd.DataFrame, chosen: pd.Series) -> pd.DataFrame:
    some = bool((rows["gpu"] & chosen).any())
    found = _among(rows, chosen, "layer", chosen & rows["cpu"] & some)
    found = found.assign(why=np.where(found["on_gpu"] > 0, APART, WHOLE))
    return found.sort_values("share", ascending=False, kind="stable")


def _without_layer(rows: pd.DataFrame, judged: pd.Series, variables_on_gpu: bool) -> pd.DataFrame:
    # A read tells only where its variable is; that variable's update says so too.
    found = _among(rows, judged, "op_type", rows["cpu"] & (rows["layer"] == "") & (rows["op_type"] != _READ))
    updates = _each(found["op_type"], lambda op_type: _UPDATE.match(op_type) is not None) & variables_on_gpu
    found = found[(found["on_gpu"] > 0) | updates]
    scoped = [len([part for part in normal_name(name).split("/") if part not in _LOOP]) > 1 for name in found["name"]]
    found = found[np.array(scoped, dtype=bool)].assign(why=LIKE)
    return found.sort_values("share", ascending=False, kind="stable")
