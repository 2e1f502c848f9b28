"""What Ray's actors do for a run of several workers: agree on TF_CONFIG, then start one training process each.

The process is the same that a gang on one host starts. So every worker has a main thread, signals and an exit code of
its own, TensorFlow finds its environment set and file descriptors 1 and 2 redirected before it is imported, and runs
of one worker and of several are timed alike. No process here imports TensorFlow: Ray's own backend would in three.
"""

import json
import os
import socket
import subprocess
import sys
import time
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import ray
import ray.train
from ray.train.backend import Backend, BackendConfig

from training.run_folder import Launch, RunFolder, write_atomically
from training.spec import RunSpec
from training.worker.gang import Ports, worker_cores, worker_environment

Command = typing.Callable[[RunFolder, int], list[str]]
"""Module and arguments of worker i. Tests put in theirs; it must be importable in the actors."""

WAIT_S = 0.1

_ports = Ports()  # of this actor; held until it ends, so that no other run on its host is given the same


@dataclass
class WorkerProcess:
    """What an actor tells the driver of its training process, through a file in the worker's folder.

    Attributes:
        host: where it runs.
        pid: its process id there.
        exit_code: None while it runs; -N when signal N killed it.
        peak_memory_mb: the most it was resident with, in MB (10^6 bytes); known at its end.
    """

    host: str
    pid: int
    exit_code: int | None = None
    peak_memory_mb: float = 0.0

    def write(self, folder: RunFolder, index: int) -> None:
        """Leaves it for the driver."""
        write_atomically(folder.worker(index).process, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: RunFolder, index: int) -> "WorkerProcess | None":
        """What the actor of worker `index` wrote last; None when it has not started a process yet."""
        try:
            return cls(**json.loads(folder.worker(index).process.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


class TensorflowConfig(BackendConfig):
    """Takes the place of Ray's class of this name, whose module imports TensorFlow wherever it is unpickled."""

    @property
    def backend_cls(self) -> type[Backend]:
        """What sets TF_CONFIG."""
        return _TensorflowBackend


class _TensorflowBackend(Backend):
    def on_start(self, worker_group: typing.Any, backend_config: BackendConfig) -> None:
        """Gives every worker the addresses of all."""
        addresses = worker_group.execute(_address)
        hosts = {host for host, _ in addresses}
        # On one node nothing needs to know, or to reach, the node's address in the network.
        workers = [f"127.0.0.1:{port}" if len(hosts) == 1 else f"{host}:{port}" for host, port in addresses]
        ray.get(
            [worker_group.execute_single_async(index, _set_tf_config, workers, index) for index in range(len(workers))]
        )


def _address() -> tuple[str, int]:
    host = ray.util.get_node_ip_address()
    return f"[{host}]" if ":" in host else host, _ports.take(1)[0]


def _set_tf_config(workers: list[str], index: int) -> None:
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    hosts = sorted({worker.rpartition(":")[0].strip("[]") for worker in workers})
    # TensorFlow's gRPC would ask a proxy of the environment for its peers.
    os.environ.update({"TF_CONFIG": json.dumps(cluster), "no_grpc_proxy": ",".join(hosts)})


def train_one_worker(config: dict[str, typing.Any]) -> None:
    """Ray Train's training function: runs one worker's training process to its end.

    It returns also when the process has failed, and leaves the judgement to the supervisor: Ray would kill the other
    workers before they are asked.

    Args:
        config: `folder`, the run's folder; `command`, a Command, or None for the training process.
    """
    context = ray.train.get_context()
    index = context.get_world_rank()
    folder = RunFolder(config["folder"])
    spec, launch = folder.spec(), folder.launch()
    environment = training_environment(folder, spec, launch, index, os.environ)
    command: Command = config["command"] or _training_process
    files = folder.worker(index)
    files.path.mkdir(parents=True, exist_ok=True)
    with open(files.stdout, "ab") as stdout, open(files.stderr, "ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "experiments.engines.tied", str(os.getpid()), *command(folder, index)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder.path,
            env=environment,
            start_new_session=True,
        )
    on_one_node = context.get_local_world_size() == context.get_world_size()
    if on_one_node and (cores := worker_cores(spec, launch, sorted(os.sched_getaffinity(0)))):
        os.sched_setaffinity(process.pid, cores[index])
    told = WorkerProcess(socket.gethostname(), process.pid)
    told.write(folder, index)
    told.exit_code, told.peak_memory_mb = _wait(process, folder.stop_request)
    told.write(folder, index)


def training_environment(
    folder: RunFolder, spec: RunSpec, launch: Launch, index: int, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The environment of worker `index`'s training process: the actor's, with its addresses and its own GPUs."""
    environment = worker_environment(folder, spec, launch, inherited, index, [])
    environment["TF_CONFIG"] = inherited["TF_CONFIG"]
    if spec.device == "gpu" and launch.gpu_ids is None and "CUDA_VISIBLE_DEVICES" in inherited:
        # Ray has given each actor its share already, counted on the actor's own node: nothing is left to divide.
        environment["CUDA_VISIBLE_DEVICES"] = inherited["CUDA_VISIBLE_DEVICES"]
    return environment


def _wait(process: subprocess.Popen[bytes], stop: Path) -> tuple[int, float]:
    """Waits for a process, or ends it when `stop` appears. Returns its exit code and its peak memory in MB."""
    kill_at = float("inf")
    # wait4 rather than Popen.wait: only it tells how much memory that one process held at most.
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        if kill_at == float("inf") and stop.exists():
            kill_at = time.monotonic() + float(stop.read_text(encoding="utf-8"))
            process.terminate()
        if time.monotonic() > kill_at:
            process.kill()
        time.sleep(WAIT_S)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    return process.returncode, ended[2].ru_maxrss * 1024 / 1e6


def _training_process(folder: RunFolder, index: int) -> list[str]:
    return ["training.worker.process", str(folder.path), str(index)]
