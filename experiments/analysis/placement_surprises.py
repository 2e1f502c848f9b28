"""Ops of a GPU run that are on the CPU and could be expected on a GPU."""

import functools
import re
from collections.abc import Mapping

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
    held = {op_type: _is_held(op_type) for op_type in table["op_type"].unique()}
    work = table[(table["role"] == COMPUTE) & (table["source"] == "graph") & ~table["op_type"].map(held).astype(bool)]
    if device.lower() != "gpu" or work.empty:
        return pd.DataFrame(columns=COLUMNS)
    kind = kinds(work["device"])
    work = work.assign(is_gpu=kind == "GPU", is_cpu=kind == "CPU")
    by_hand = [layer for layer, where in asked.items() if where.strip("/").rpartition("/")[2].startswith("CPU")]
    layers = work[(work["layer"] != "") & ~work["layer"].isin(by_hand)]
    found = [_of_layers(layers)]
    if not by_hand:
        found.append(_without_layer(work, bool(layers.loc[layers["op_type"] == _READ, "is_gpu"].any())))
    return pd.concat(found, ignore_index=True)[COLUMNS]


@functools.lru_cache(maxsize=4096)
def _is_held(op_type: str) -> bool:
    return bool(_HOST.fullmatch(op_type) or _HOST_FAMILY.match(op_type))


def _counted(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    groups = rows.groupby(by, observed=True)["is_gpu"]
    return rows.assign(on_gpu=groups.transform("sum").astype("int64"), of=groups.transform("size").astype("int64"))


def _of_layers(rows: pd.DataFrame) -> pd.DataFrame:
    found = _counted(rows, "layer")
    found = found[found["is_cpu"] & rows["is_gpu"].any()]
    found = found.assign(why=np.where(found["on_gpu"] > 0, APART, WHOLE), share=found["on_gpu"] / found["of"])
    return found.sort_values("share", ascending=False, kind="stable")


def _without_layer(work: pd.DataFrame, variables_on_gpu: bool) -> pd.DataFrame:
    found = _counted(work, "op_type")
    # A read tells only where its variable is; that variable's update says so too.
    found = found[found["is_cpu"] & (found["layer"] == "") & (found["op_type"] != _READ)]
    updates = variables_on_gpu & found["op_type"].str.match(_UPDATE)
    found = found[(found["on_gpu"] > 0) | updates]
    scoped = [len([part for part in normal_name(name).split("/") if part not in _LOOP]) > 1 for name in found["name"]]
    found = found[np.array(scoped, dtype=bool)]
    found = found.assign(why=LIKE, share=found["on_gpu"] / found["of"])
    return found.sort_values("share", ascending=False, kind="stable")
