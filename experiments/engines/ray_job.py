"""The supervisor of a run of several workers on Ray: `python -m experiments.engines.ray_job RUN_FOLDER`.

The same supervisor as on one host, with a gang whose workers Ray Train places on the nodes. This process takes no CPU
of Ray's account, so that two workers of one core each fit on two cores.
"""

import logging
import os
import platform
import shutil
import signal
import socket
import sys
import threading
import types
import typing
from collections.abc import Mapping, Sequence
from unittest import mock

import ray
import ray.train

from experiments.engines.end_order import EndOrder
from experiments.engines.ray_worker import Command, TensorflowConfig, WorkerProcess, train_one_worker
from training.run_folder import RunFolder, write_atomically
from training.spec import SpecError
from training.worker.gang import end_strays
from training.worker.supervisor import AlreadyStartedError, supervise

log = logging.getLogger("training.worker.ray_gang")  # below the supervisor's, so that it goes into supervisor.log

_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # 2 s unless set, by which a run would end later
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
_ACTORS_ENVIRONMENT = {"RAY_worker_niceness": "0"}  # unless set, actors and what they start have niceness 15

_UNUSED = ("PlacementGroupCleanerCallback", "DatasetsCallback")
"""Parts of Ray Train that start an actor each, seconds before the workers' start or beside it: one cleans up after a
controller that outlived its driver, which this one cannot, the other hands out Ray datasets, of which there is none."""

RAY_GRACE_S = 4.0
"""From the end of the training processes to that of Ray's actors; in all, less than an engine waits before it kills."""


class RayGangError(RuntimeError):
    """Ray could not start, or lost, the workers. The message says what Ray says."""


class RayGang:
    """The workers of one run, one Ray actor each.

    Args:
        folder: the run's folder, with spec and launch; every node must reach it.
        command: what a worker runs, instead of the training process.
    """

    def __init__(self, folder: RunFolder, command: Command | None = None):
        self._folder = folder
        self._spec, self._launch = folder.spec(), folder.launch()
        self._command = command
        self._thread: threading.Thread | None = None
        self._error = ""
        self._lost: set[int] = set()
        self._ends = EndOrder()
        self._all_here = False
        self._ended = False

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self._spec.workers

    def start(self) -> None:
        """Has Ray start them all, and returns at once. Raises RayGangError when Ray cannot be joined."""
        os.environ.update(_ENVIRONMENT)
        # The watch says which worker never joined; Ray must not give up before it.
        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(self._launch.join_deadline_s + 60)
        on_terminate = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(log_to_driver=False, runtime_env={"env_vars": _ACTORS_ENVIRONMENT})
        except (RuntimeError, OSError) as error:
            # A cluster of another version is refused here, with both versions in Ray's own words.
            ours = f"this side has Ray {ray.__version__}, Python {platform.python_version()}"
            raise RayGangError(f"Ray at {os.environ.get('RAY_ADDRESS', '')} refused: {error} ({ours})") from None
        finally:
            signal.signal(signal.SIGTERM, on_terminate)  # Ray replaces the supervisor's
        trainer = self._trainer()
        self._thread = threading.Thread(target=self._fit, args=(trainer,), name="ray-train", daemon=True)
        self._thread.start()

    def poll(self) -> Sequence[int | None]:
        """One exit code per worker; -9 for one that Ray lost, whatever became of it.

        Before `end`, those that Ray ends because it lost another count as living.

        Raises:
            RayGangError: Ray ended before it had started any worker.
        """
        ended = self._thread is not None and not self._thread.is_alive()  # before the files, which come first
        told = [WorkerProcess.read(self._folder, index) for index in range(self.size)]
        if ended and not any(told) and not self._ended:
            raise RayGangError(f"Ray started no worker: {self._error or 'it gives no reason'}")
        self._watch(told)
        codes = [worker.exit_code if worker else None for worker in told]
        if self._ended:
            return [-signal.SIGKILL if ended and code is None else code for code in codes]
        first = self._first_lost(codes)
        if first is not None:
            # Ray kills the others for its sake, and the actor of one may still tell that its process was killed.
            codes = [None if code == -signal.SIGKILL else code for code in codes]
        lost = [first] if first is not None else self._lost or range(self.size)
        return [
            -signal.SIGKILL if ended and code is None and index in lost else code for index, code in enumerate(codes)
        ]

    def _watch(self, told: Sequence[WorkerProcess | None]) -> None:
        here = socket.gethostname()
        self._all_here = all(worker is not None and worker.host == here for worker in told)
        for index, worker in enumerate(told):
            if worker is not None and worker.host == here and worker.exit_code is None:
                self._ends.watch(index, worker.pid)

    def _first_lost(self, codes: Sequence[int | None]) -> int | None:
        """The worker whose process was the first to end and whose actor told nothing of it: Ray lost the actor.

        Ray has been seen to name another. None where a process was killed before, whose end is then that of all, and
        where not all processes can be seen.
        """
        for index in self._ends.ended() if self._all_here else []:
            if codes[index] is None:
                return index
            if codes[index] == -signal.SIGKILL:
                return None
        return None

    def pids(self) -> Mapping[int, int]:
        """The training processes on this host, as long as their actors have not seen them end, and their workers."""
        told = [WorkerProcess.read(self._folder, index) for index in range(self.size)]
        here = socket.gethostname()
        return {
            worker.pid: index
            for index, worker in enumerate(told)
            if worker and worker.exit_code is None and worker.host == here
        }

    def peak_memory_mb(self) -> float:
        """The largest resident size of any training process that has ended, in MB."""
        told = [WorkerProcess.read(self._folder, index) for index in range(self.size)]
        return max((worker.peak_memory_mb for worker in told if worker), default=0.0)

    def end(self, grace_s: float) -> None:
        """SIGTERM to the training processes on every node, SIGKILL after `grace_s`, and the end of Ray's part.

        Where Ray does not come to its end, this process's own end is that of its actors, and of what they started.
        """
        self._ended = True
        write_atomically(self._folder.stop_request, str(grace_s))
        if self._thread is not None:
            self._thread.join(timeout=grace_s + RAY_GRACE_S)
            if not self._thread.is_alive():
                # Only now: while a thread asks Ray for something, this would end the process itself.
                ray.shutdown()
        end_strays(self._folder)
        shutil.rmtree(self._storage, ignore_errors=True)

    @property
    def _storage(self) -> str:
        """Where Ray Train keeps what it must; its default is in the home folder."""
        return str(self._folder.path / "ray-train")

    def _trainer(self) -> typing.Any:
        resources = {"CPU": max(1, self._launch.cpus // self.size)}
        if self._spec.gpus_per_worker:
            resources["GPU"] = self._spec.gpus_per_worker
        # TensorflowTrainer's constructor imports this package for the class of its default argument, and the package
        # imports TensorFlow: seconds and 400 MB, for a process that never uses it.
        light = types.ModuleType("ray.train.tensorflow")
        light.TensorflowConfig = TensorflowConfig  # type: ignore[attr-defined]
        from ray.train.v2.tensorflow.tensorflow_trainer import TensorflowTrainer

        class LeanTrainer(TensorflowTrainer):
            def _create_default_callbacks(self) -> list[typing.Any]:
                return [each for each in super()._create_default_callbacks() if type(each).__name__ not in _UNUSED]

        with mock.patch.dict(sys.modules, {light.__name__: light}):
            return LeanTrainer(
                train_one_worker,
                train_loop_config={"folder": str(self._folder.path), "command": self._command},
                tensorflow_config=TensorflowConfig(),
                scaling_config=ray.train.ScalingConfig(
                    num_workers=self.size,
                    use_gpu=bool(self._spec.gpus_per_worker),
                    resources_per_worker=resources,
                ),
                run_config=ray.train.RunConfig(name=self._launch.run_id, storage_path=self._storage),
            )

    def _fit(self, trainer: typing.Any) -> None:
        try:
            trainer.fit()
        except Exception as error:
            if not self._ended:  # else it is the shutdown that it stumbles over
                self._error = " ".join(str(error).split())[-1000:]
                self._lost = set(getattr(error, "worker_failures", {}))
                log.warning("Ray Train failed: %s", self._error)


def main(arguments: list[str]) -> int:
    """Runs the folder named by the only argument. Returns the exit code; 2 for bad input, with one line on stderr."""
    if len(arguments) != 1:
        print("usage: python -m experiments.engines.ray_job RUN_FOLDER", file=sys.stderr)
        return 2
    folder = RunFolder(arguments[0])
    try:
        return supervise(folder, RayGang(folder))
    except (SpecError, AlreadyStartedError, OSError, ValueError, TypeError) as error:
        print(f"{folder.path} cannot be run: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Where Ray could not be brought to its end, a thread still waits for it, and an orderly exit would, too.
    os._exit(exit_code)
