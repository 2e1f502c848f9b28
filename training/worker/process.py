"""One training process: `python -m training.worker.process RUN_FOLDER INDEX`.

Reads the spec, sets up devices and strategy, trains, and reports into its journal. It knows no tracking server. File
descriptors 1 and 2 are files already when it starts, because TensorFlow writes to them from C++.
"""

import concurrent.futures
import json
import re
import signal
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable
from types import FrameType

from training import catalog, hardware
from training.names import Metric, Phase, RunStatus, Tag
from training.run_folder import Launch, RunFolder, write_atomically
from training.spec import RunSpec
from training.worker.journal import Journal
from training.worker.lean_import import lean_import
from training.worker.post_mortem import end_of

if typing.TYPE_CHECKING:  # TensorFlow is imported while the data set is being read, not before
    import keras

    from training.datasets.base import Data
    from training.worker.loop import EpochResult
    from training.worker.timing import Window

FLUSH_SECONDS = 0.25
"""Windows are written to the journal at most this often: short ones come in hundreds a second."""


class Stopped(BaseException):
    """The run was asked to stop. Not an Exception: nothing on the way may take it for an error."""


def run_worker(folder: RunFolder, index: int, started_at: float) -> RunStatus:
    """Trains one worker's part of a run and reports its end.

    Args:
        folder: the run's folder, with spec.json and launch.json.
        index: this worker, from 0; worker 0 is the chief.
        started_at: unix seconds when this process started.

    Returns:
        How it ended. The journal holds the same, with the reason.
    """
    journal = Journal(folder.worker(index).journal)
    try:
        journal.phase(Phase.STARTING)
        _train(folder, index, started_at, journal)
    except Stopped:
        status, reason = RunStatus.KILLED, "stopped by request"
    except Exception as error:
        traceback.print_exc()
        status, reason = RunStatus.FAILED, reason_of(error, end_of(folder.worker(index).stderr))
    else:
        status, reason = RunStatus.FINISHED, ""
    journal.phase(Phase.ENDED)
    journal.end(status, reason)
    return status


def _train(folder: RunFolder, index: int, started_at: float, journal: Journal) -> None:
    spec, launch = folder.spec(), folder.launch()
    # Reading and unpacking the data takes as long as a good part of TensorFlow's import: do both at once.
    loading = _in_background(lambda: _load_data(spec))

    with lean_import():
        from training.worker import devices, diagnosis, environment, strategies
        from training.worker.loop import Loop, build
        from training.worker.manual_placement import place_layers

    devices.configure(spec, max(1, launch.cpus // spec.workers))
    strategy = strategies.create(spec)
    seen = devices.report(spec)
    journal.joined()
    journal.metrics({Metric.TIME_STARTUP: time.time() - started_at})

    journal.phase(Phase.LOADING_DATA)
    began = time.perf_counter()
    data = loading.result()
    journal.metrics({Metric.TIME_DATA: time.perf_counter() - began})

    journal.phase(Phase.BUILDING)
    began = time.perf_counter()
    if spec.manual_placement:
        place_layers(dict(spec.manual_placement))
    model, examples = build(spec, strategy, data)
    loop = Loop(spec, strategy, model, data, examples)
    journal.metrics({Metric.TIME_BUILD: time.perf_counter() - began})
    journal.phase(Phase.COMPILING)

    reporter = Reporter(spec, journal, index)
    reporter.peak_gpu_memory = lambda: devices.peak_gpu_memory_mb(seen)
    reporter.profiler_is_on = environment.profiler_is_on

    def describe() -> None:
        """What is known once the run is under way; after the first step, so that it delays nothing."""
        journal.tags(
            environment.describe()
            | {
                Tag.CPU_COUNT: str(cpu_count(spec, launch)),
                Tag.PROFILER: str(environment.profiler_is_on()).lower(),
                Tag.ONEDNN: str(environment.onednn_is_on()).lower(),
                Tag.DEVICES_ASKED: seen.asked,
                Tag.DEVICES_SEEN: ", ".join(seen.seen),
                Tag.REPLICAS_IN_SYNC: str(strategy.num_replicas_in_sync),
                Tag.JIT_COMPILE: str(loop.jit_compiled).lower(),
                Tag.SIMULATED: str(spec.simulated).lower(),
                Tag.PER_REPLICA_BATCH_SIZE: str(loop.plan.batch),
                Tag.STEPS_PER_EPOCH: str(loop.plan.steps),
                Tag.EXAMPLES_PER_EPOCH: str(loop.plan.steps * loop.plan.global_batch),
                Tag.VALIDATION_EXAMPLES: str(len(data.validation)),
                Tag.PARAMETERS: str(model.count_params()),
                Tag.DATASET_DIGEST: data.digest,
                Tag.DATASET_SOURCE: data.source,
            }
        )
        journal.dataset(
            {
                "name": spec.dataset,
                "digest": data.digest,
                "source": data.source,
                "examples": len(data.train),
                "validation_examples": len(data.validation),
                "shape": data.shape,
                "classes": data.classes,
            }
        )
        if index == 0:
            write_atomically(folder.environment, json.dumps(environment.full(), indent=2, sort_keys=True))

    reporter.after_first_step = describe
    loop.run(reporter)
    reporter.flush()
    journal.metrics({Metric.TIME_TOTAL: time.time() - started_at})
    if spec.save_model and index == 0:
        journal.phase(Phase.SAVING)
        _save_model(folder, model)
    if spec.epochs > 1:  # a single epoch has no steady step to compare with
        journal.phase(Phase.MEASURING)
        try:
            for name, seconds in diagnosis.measured(loop, data, examples):
                journal.metrics({name: seconds})
        except Exception as error:
            print(f"warning: what a step is made of could not be measured: {reason_of(error)}", flush=True)


class Reporter:
    """The loop's actions: everything goes into the journal, outside the clock.

    Attributes:
        after_first_step: called once, when the first step is done.
        peak_gpu_memory: GPU index -> peak MB.
        profiler_is_on: whether TensorFlow's profiler is; asked at the end of each epoch.

    Args:
        spec: the run.
        journal: of this worker.
        index: this worker, from 0.
    """

    def __init__(self, spec: RunSpec, journal: Journal, index: int = 0):
        self._spec, self._journal, self._index = spec, journal, index
        self._points: list[tuple[int, float, float]] = []
        self._flushed = 0.0
        self._phase = Phase.COMPILING
        self.after_first_step: Callable[[], None] = lambda: None
        self.peak_gpu_memory: Callable[[], dict[int, float]] = dict
        self.profiler_is_on: Callable[[], bool] = bool

    def on_first_step(self, seconds: float) -> None:
        self._journal.metrics({Metric.TIME_FIRST_STEP: seconds})
        self.after_first_step()

    def on_window(self, epoch: int, window: "Window") -> None:
        self._enter(Phase.TRAINING)
        self._points.append((window.step, window.examples_per_second, window.ended_at))
        if window.ended_at - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def on_validation(self, epoch: int) -> None:
        self.flush()
        self._enter(Phase.VALIDATING)

    def on_epoch(self, result: "EpochResult") -> None:
        values = result.logs | {
            Metric.TIME_EPOCH_TRAIN: result.training.seconds,
            Metric.TIME_EPOCH_VALIDATION: result.validation_seconds,
            Metric.TIME_INPUT_WAIT: result.training.input_wait,
            Metric.EXAMPLES_PER_SECOND: result.training.examples_per_second,
        }
        for gpu, peak in self.peak_gpu_memory().items():
            values[Metric.GPU_PEAK_MEMORY.format(index=gpu)] = peak
        if self._spec.workers > 1:
            own = result.training.examples / self._spec.workers
            values[Metric.WORKER_THROUGHPUT.format(index=self._index)] = own / result.training.seconds
        self._journal.metrics(values, step=result.epoch)
        if self.profiler_is_on():
            self._journal.tags({Tag.PROFILER: "true"})
        shown = "  ".join(f"{name} {value:.4f}" for name, value in sorted(result.logs.items()))
        print(
            f"epoch {result.epoch + 1}/{self._spec.epochs}  {result.training.seconds:.2f} s  "
            f"{result.training.examples_per_second:,.0f} examples/s  {shown}",
            flush=True,
        )

    def flush(self) -> None:
        """Writes the windows gathered so far."""
        if self._points:
            self._journal.series(Metric.WINDOW, self._points)
            self._points = []
            self._flushed = time.time()

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self._journal.phase(phase)


def cpu_count(spec: RunSpec, launch: Launch) -> int:
    """CPUs the run may use, all workers together. One that is pinned, or alone on its host, sees only its own.

    Of workers on several hosts what they were given counts: how many more the other hosts have is not known here.
    """
    seen = hardware.usable_cpus()
    return max(seen, min(seen * spec.workers, launch.cpus))


def _load_data(spec: RunSpec) -> "Data":
    data: Data = catalog.load(catalog.DATASETS[spec.dataset].path).load(spec.dataset_options)
    return data


def _in_background(work: "Callable[[], Data]") -> "concurrent.futures.Future[Data]":
    """Does it in a thread that nobody waits for: an error meanwhile must end the process, not wait for the data."""
    future: concurrent.futures.Future[Data] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="load-data", daemon=True).start()
    return future


def _save_model(folder: RunFolder, model: "keras.Model") -> None:
    """Saves an MLflow model, so that `mlflow.tensorflow.load_model` reads it."""
    import mlflow.tensorflow

    mlflow.tensorflow.save_model(model, str(folder.model))


# --- why it failed -------------------------------------------------------------------------------------------------

_SHAPE = re.compile(r"shape\s?\[[\d,\s]*\]")
_OF_THE_FRAMES = re.compile(r'\s*(File "|Detected at node |Node: |\d+ root error)| {4}')
_NODE = re.compile(r"^\{\{function_node [^}]*\}\} ")
_NO_GPU = re.compile(
    rb"(?:Could not find cuda|Cannot dlopen|failed call to cuInit|cuda drivers|Could not load dynamic library"
    rb"|Skipping registering GPU|no CUDA-capable device)[^\n]*"
)


def reason_of(error: BaseException, stderr: bytes = b"") -> str:
    """One line that says why training failed.

    Args:
        error: what was raised.
        stderr: the end of what the process wrote to file descriptor 2, where TensorFlow's own words are.
    """
    text = _cause(str(error))
    name = type(error).__name__
    if name == "ResourceExhaustedError" or isinstance(error, MemoryError):
        shape = _SHAPE.search(str(error))
        return f"OOM: {shape[0] if shape else text or name}"
    if name == "DeviceError" and "GPU" in text:
        own = [match.decode("utf-8", "replace").strip() for match in _NO_GPU.findall(stderr)]
        return f"{text}; TensorFlow says: {own[-1]}" if own else text
    if name in ("DeviceError", "StrategyError", "DataSetError", "DataFileError"):
        return text
    return f"{name}: {text}" if text else name


def _cause(message: str) -> str:
    """The line of an error's message that says what happened: of a graph's error, it comes after the stack frames."""
    lines = [line for line in message.splitlines() if line.strip()]
    if lines and lines[0].strip() == "Graph execution error:":
        lines = [line for line in lines[1:] if not _OF_THE_FRAMES.match(line)] or lines
    return _NODE.sub("", lines[0].strip()) if lines else ""


def main(arguments: list[str]) -> int:
    """Entry point of a training process. Returns 0 if it finished, 1 if it failed, 143 if it was stopped."""
    import psutil

    if len(arguments) != 2 or not arguments[1].isdigit():
        print("usage: python -m training.worker.process RUN_FOLDER INDEX", file=sys.stderr)
        return 2

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    status = run_worker(RunFolder(arguments[0]), int(arguments[1]), psutil.Process().create_time())
    return {RunStatus.FINISHED: 0, RunStatus.KILLED: 143}.get(status, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
