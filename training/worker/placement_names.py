"""What an op's name says: its Keras layer, and whether it feeds the model or is the model.

TensorFlow makes every name scope of a graph unique, and Keras 3 opens each layer's scope twice (once to build, once
to call), so an op of the layer `conv2d` is called `sequential_1/conv2d_1/convolution`, and one of the layer `conv2d_1`
`sequential_1/conv2d_1_2/convolution`. The names are traced back by playing TensorFlow's rule again.
"""

import functools
import re
from collections.abc import Iterable, Sequence

INPUT_SCOPE = "input"
"""The training loop fetches its batches under `tf.name_scope(INPUT_SCOPE)`."""

INPUT = "input"
COMPUTE = "compute"

# Scopes that functions, loops, gradients and replicas put around an op's own name.
_AROUND = re.compile(
    r"(?<![^/])(?:while|cond|body|branches|true_fn|false_fn|gradient_tape|gradients|replica|"
    r"(?:Stateful|Stateless)?PartitionedCall|(?:Stateless)?(?:While|If))?(?:_\d+)*(?:/|$)"
)
_NUMBER = re.compile(r"_\d+$")
_INPUT_SCOPE = re.compile(rf"{INPUT_SCOPE}(?:_\d+)?")
_PIPELINE_NAME = re.compile(r"(?:^|_)(?:iterator|dataset)(?:_|\d|$)")
# Nodes that stand for a function's arguments and results carry the argument's name, not a scope.
_ARGUMENTS = frozenset({"_Arg", "_DeviceArg", "_Retval", "_DeviceRetval"})
# Ops of tf.data whose type names neither a data set nor an iterator, and those that bring a host's value to a device.
_PIPELINE_TYPES = frozenset(
    {
        "AnonymousMemoryCache",
        "AnonymousRandomSeedGenerator",
        "AnonymousSeedGenerator",
        "DummyMemoryCache",
        "DummySeedGenerator",
        "GetOptions",
        "OptionalFromValue",
        "OptionalGetValue",
        "OptionalHasValue",
        "OptionalNone",
        "RemoteCall",
        "_EagerConst",
        "_HostRecv",
        "_HostSend",
    }
)


@functools.lru_cache(maxsize=4096)
def _is_pipeline_type(op_type: str) -> bool:
    return "Dataset" in op_type or "Iterator" in op_type or op_type in _PIPELINE_TYPES


def scopes(name: str) -> list[str]:
    """The scopes an op was made in, outermost first, without those of loops, gradients and replicas.

    `while/body/_1/gradient_tape/while/replica_1/sequential_1/dense_1/MatMul` -> `["sequential_1", "dense_1"]`. A
    function's plumbing (`Func/...`) has none: its middle is a fixed word, not a scope.
    """
    own = _own_folder(name)
    return own.split("/") if own else []


def _own_folder(name: str) -> str:
    if name.startswith("Func/"):
        return ""
    return _AROUND.sub("", name.rpartition("/")[0]).rstrip("/")


def roles_and_layers(
    names: Sequence[str], op_types: Sequence[str], layers: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Tells ops on input from ops of compute, and traces op names back to Keras layers.

    Args:
        names: every op name of one log; which of TensorFlow's numberings is at work shows only in all of them.
        op_types: of the same ops.
        layers: the model's layer names in the order they are called. Without them, a layer is what stands second
            in a name (`model/layer/op`) where the numbers tell that Keras made the scopes.

    Returns:
        Of each op its role (`INPUT`: it belongs to the input pipeline; `COMPUTE`: to the model and its training), and
        its layer, also for the layer's gradient; empty where there is none.
    """
    # Ops share their scopes: everything that costs is done once a folder, not once an op.
    folders = [_own_folder(name) for name in names]
    known = _Folders(set(folders), layers)
    roles = [
        INPUT if folder in known.inputs or _feeds(name, op_type) else COMPUTE
        for name, op_type, folder in zip(names, op_types, folders, strict=True)
    ]
    return roles, [known.layers[folder] for folder in folders]


def _feeds(name: str, op_type: str) -> bool:
    """Whether an op is of the input pipeline by what it is, wherever it was made."""
    if op_type in _ARGUMENTS:
        return _PIPELINE_NAME.search(name) is not None
    return _is_pipeline_type(op_type)


class _Folders:
    """What is known of each folder of op names: `inputs`, those of the input scope, and `layers`, folder -> layer."""

    def __init__(self, folders: Iterable[str], layers: Sequence[str]):
        self._layers = sorted(layers, key=len, reverse=True)
        split = {folder: folder.split("/") if folder else [] for folder in folders}
        seen: set[str] = set()
        inner: dict[str, set[str]] = {}
        for inside in split.values():
            seen.update(inside)
            if len(inside) > 1:
                inner.setdefault(inside[0], set()).add(inside[1])
        self._scope_to_layer: dict[str, str] = {}
        if layers:
            # Other Keras versions may open a scope once: take the rule that explains more of what is there.
            once, twice = _scope_names(layers, 1), _scope_names(layers, 2)
            self._scope_to_layer = twice if len(seen & twice.keys()) > len(seen & once.keys()) else once
        self._models = {outer for outer, found in inner.items() if all(_NUMBER.search(scope) for scope in found)}
        self.inputs = {folder for folder, inside in split.items() if inside and _INPUT_SCOPE.fullmatch(inside[0])}
        self.layers = {folder: "" if folder in self.inputs else self._layer(inside) for folder, inside in split.items()}

    def _layer(self, inside: list[str]) -> str:
        if not self._layers:
            return _NUMBER.sub("", inside[1]) if len(inside) > 1 and inside[0] in self._models else ""
        for scope in inside:
            if scope not in self._scope_to_layer:
                self._scope_to_layer[scope] = self._called_again(scope)
            if self._scope_to_layer[scope]:
                return self._scope_to_layer[scope]
        return ""

    def _called_again(self, scope: str) -> str:
        """The layer of a later call in the same graph, whose scope has a higher number."""
        for layer in self._layers:
            if scope == layer or (scope.startswith(layer) and re.fullmatch(r"_\d+", scope[len(layer) :])):
                return layer
        return ""


def _scope_names(layers: Sequence[str], openings: int) -> dict[str, str]:
    """Scope -> layer after calling the layers in order, by the rule of `tf.Graph.unique_name`.

    Args:
        layers: layer names in the order of their calls.
        openings: how often a call opens the layer's scope; the ops are made in the last.
    """
    used: dict[str, int] = {}
    scope_to_layer = {}
    for layer in layers:
        scope = layer
        for _ in range(openings):
            # unique_name: the first free number, counted from how often this very name was asked for.
            base = layer.lower()
            number = used.get(base, 0)
            used[base] = number + 1
            scope = layer
            if number:
                key = base
                while key in used:
                    key = f"{base}_{number}"
                    number += 1
                used[key] = 1
                scope = f"{layer}_{number - 1}"
        scope_to_layer[scope] = layer
    return scope_to_layer
