"""What the machines have, what a run takes of it, and where a run fits. Counts only: who runs now is not known here."""

import os
import time
import typing
from dataclasses import dataclass

from experiments.wording import count
from training import hardware
from training.hardware import usable_cpus
from training.spec import RunSpec

if typing.TYPE_CHECKING:
    from experiments.settings import Settings

FRESH_S = 5.0  # a cluster is asked again after this many seconds; a form asks at every keystroke


@dataclass(frozen=True)
class Capacity:
    """What there is.

    Attributes:
        cpus: processor cores over all nodes.
        gpus: GPUs over all nodes.
        nodes: (cores, GPUs) of each node.
        source: "ray", or "this machine".
        gpu_ids: physical GPU indices (nvidia-smi order) where there is one node. Empty on several: an index would
            mean another GPU on each; and where the GPU is a slice of one (MIG), which has no index.
    """

    cpus: int
    gpus: int
    nodes: tuple[tuple[int, int], ...]
    source: str
    gpu_ids: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """How to call it in a sentence."""
        return "this machine" if self.source == "this machine" else "this cluster"


@dataclass(frozen=True)
class Request:
    """What one run takes, from its start to its end."""

    workers: int
    cpus_per_worker: int
    gpus_per_worker: int

    @property
    def cpus_total(self) -> int:
        """Cores of all workers together. What starts and watches them is not counted: it hardly computes."""
        return self.workers * self.cpus_per_worker

    @property
    def gpus_total(self) -> int:
        """GPUs of all workers together."""
        return self.workers * self.gpus_per_worker


def of(settings: "Settings") -> Capacity:
    """What the runs of these settings can use: the Ray cluster's, or this machine's where no cluster is set.

    Raises:
        EngineUnavailableError: the cluster does not answer.
    """
    key = settings.ray_address
    known = _known.get(key)
    if known is None or time.monotonic() - known[0] > FRESH_S:
        if key:
            # Only where a cluster is set: importing Ray takes a second.
            from experiments.engines.ray_engine import RayEngine

            found = RayEngine(settings).capacity()
        else:
            found = this_machine()
        _known.clear()  # one process asks about one cluster; an old answer about another is of no use
        _known[key] = known = (time.monotonic(), found)
    return known[1]


_known: dict[str, tuple[float, Capacity]] = {}


def request(spec: RunSpec, capacity: Capacity) -> Request:
    """What a run takes.

    A CPU run that names no threads takes a whole node, divided by the workers on it, so that its times are its own. A
    GPU run that names none takes the share of its node's cores that its GPUs are of the node's GPUs.

    Args:
        spec: the run.
        capacity: of the machines it is for.

    Returns:
        At least one core per worker, also where there are not that many: `shortage` tells.
    """
    gpus = spec.gpus_per_worker
    if spec.cpu_threads is not None:
        cpus = spec.cpu_threads
    elif gpus:
        shares = [node_cpus * gpus // node_gpus for node_cpus, node_gpus in capacity.nodes if node_gpus >= gpus]
        cpus = min(shares, default=1)
    else:
        workers_on_a_node = -(-spec.workers // max(1, len(capacity.nodes)))
        cpus = min((node_cpus for node_cpus, _ in capacity.nodes), default=1) // workers_on_a_node
    return Request(spec.workers, max(1, cpus), gpus)


def shortage(wanted: Request, capacity: Capacity) -> str:
    """Why a run could not start on these machines even if they were idle; empty when it could."""
    if wanted.gpus_total > capacity.gpus:
        return f"needs {count(wanted.gpus_total, 'GPU')}, {capacity.where} has {capacity.gpus}"
    if wanted.cpus_total > capacity.cpus:
        return f"needs {count(wanted.cpus_total, 'CPU')}, {capacity.where} has {capacity.cpus}"
    if Pool(capacity).take(wanted) is None:
        each = _and(wanted.cpus_per_worker, wanted.gpus_per_worker)
        if wanted.workers == 1:
            return f"needs {each} on one machine, and no machine of this cluster has them"
        return f"needs {wanted.workers} times {each}, which the machines of this cluster cannot hold"
    return ""


@dataclass(frozen=True)
class Taken:
    """A place for one run: (node, cores, GPUs) per worker, and the GPU indices where there is one node."""

    places: tuple[tuple[int, int, int], ...]
    gpu_ids: tuple[int, ...]

    @property
    def launch_gpu_ids(self) -> list[int] | None:
        """For the launch. None: the run has GPUs, and its engine's CUDA_VISIBLE_DEVICES says which."""
        return list(self.gpu_ids) if self.gpu_ids or not any(gpus for _, _, gpus in self.places) else None


class Pool:
    """What is free. On several nodes it assumes where Ray puts a run; Ray waits if it finds otherwise."""

    def __init__(self, capacity: Capacity):
        self._capacity = capacity
        self._free = [list(node) for node in capacity.nodes]
        self._ids = list(capacity.gpu_ids)

    def take(self, wanted: Request, gpus: typing.Sequence[int] | None = None) -> Taken | None:
        """Takes a place for a run, on the GPUs it names if any. None, with nothing taken, when it does not fit."""
        if gpus is not None and self._ids and not set(gpus) <= set(self._ids):
            return None
        places: list[tuple[int, int, int]] = []
        for _ in range(wanted.workers):
            node = self._first_fit(wanted)
            if node is None:
                self._give_back(places)
                return None
            places.append(node)
            self._subtract(node)
        chosen: tuple[int, ...] = ()
        if self._ids and wanted.gpus_total:
            chosen = tuple(gpus if gpus is not None else self._ids[: wanted.gpus_total])
            self._ids = [gpu for gpu in self._ids if gpu not in chosen]
        return Taken(tuple(places), chosen)

    def take_running(self, wanted: Request, gpus: typing.Sequence[int]) -> None:
        """Notes a run that already runs, also one that no longer fits (a node has gone since)."""
        if self.take(wanted, gpus or None) is None:
            self.hold(wanted, gpus or None)

    def hold(self, wanted: Request, gpus: typing.Sequence[int] | None = None) -> None:
        """Keeps what is free of what a waiting run needs, so that no later run takes it."""
        if gpus is not None and self._ids:
            held = [gpu for gpu in gpus if gpu in self._ids]
        else:
            held = self._ids[: wanted.gpus_total]
        self._ids = [gpu for gpu in self._ids if gpu not in held]
        # Where it would go if all were idle; as nodes are filled in the same order, its turn comes there.
        idle = Pool(self._capacity).take(wanted)
        largest = max(range(len(self._free)), key=lambda node: self._capacity.nodes[node], default=0)
        alone = (largest, wanted.cpus_per_worker, wanted.gpus_per_worker)
        places = idle.places if idle else (alone,) * (wanted.workers if self._free else 0)
        for node, cpus, node_gpus in places:
            free = self._free[node]
            free[0] -= min(free[0], cpus)
            free[1] -= min(free[1], node_gpus if not self._capacity.gpu_ids else 0)
        if self._capacity.gpu_ids:
            self._free[0][1] = len(self._ids)

    def missing(self, wanted: Request, gpus: typing.Sequence[int] | None = None) -> str:
        """What a run that does not fit now waits for, such as "2 CPUs" or "GPU 0"."""
        if gpus is not None and self._capacity.gpu_ids:
            busy = [gpu for gpu in gpus if gpu not in self._ids]
            if busy:
                return "GPU " + ", ".join(str(gpu) for gpu in busy)
        if wanted.gpus_total > sum(gpus_free for _, gpus_free in self._free):
            return count(wanted.gpus_total, "GPU")
        if wanted.cpus_total > sum(cpus_free for cpus_free, _ in self._free) or not wanted.gpus_total:
            return count(wanted.cpus_total, "CPU")
        return _and(wanted.cpus_total, wanted.gpus_total)

    def _first_fit(self, wanted: Request) -> tuple[int, int, int] | None:
        # Nodes with few GPUs first, so that a CPU run leaves GPU nodes to those who need them.
        for node in sorted(range(len(self._free)), key=lambda index: self._free[index][1]):
            cpus, gpus = self._free[node]
            if cpus >= wanted.cpus_per_worker and gpus >= wanted.gpus_per_worker:
                return node, wanted.cpus_per_worker, wanted.gpus_per_worker
        return None

    def _subtract(self, place: tuple[int, int, int]) -> None:
        node, cpus, gpus = place
        self._free[node][0] -= cpus
        self._free[node][1] -= gpus

    def _give_back(self, places: list[tuple[int, int, int]]) -> None:
        for node, cpus, gpus in places:
            self._free[node][0] += cpus
            self._free[node][1] += gpus


def this_machine() -> Capacity:
    """What this process may use here: a container's limits and CUDA_VISIBLE_DEVICES are respected."""
    cpus, gpu_ids = usable_cpus(), visible_gpus()
    gpus = len(gpu_ids) or int(visible_slice())
    return Capacity(cpus, gpus, ((cpus, gpus),), "this machine", gpu_ids)


def visible_slice(environ: typing.Mapping[str, str] | None = None) -> bool:
    """Whether CUDA would show a process of this environment a slice of a GPU (MIG): it never shows more than one."""
    environ = os.environ if environ is None else environ
    return environ.get("CUDA_VISIBLE_DEVICES", "").strip().startswith("MIG-")


def visible_gpus(environ: typing.Mapping[str, str] | None = None) -> tuple[int, ...]:
    """Physical indices (nvidia-smi order) of the GPUs that CUDA would show to a process of this environment."""
    found = hardware.visible(hardware.gpus().found, environ)  # none without a driver that answers: the doctor says why
    return tuple(sorted(gpu.index for gpu in found))


def _and(cpus: int, gpus: int) -> str:
    return f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}" if gpus else count(cpus, "CPU")
