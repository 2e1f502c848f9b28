"""Flags that make a run's timing doubtful, each with the figure behind it.

A run with a flag that excludes stays visible and out of the figures unless a person puts it back. A flag whose data
was not recorded is not raised, and `unchecked` says so: silence is not a clean bill.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from training.names import FROM_PTX, Metric, RunStatus


@dataclass(frozen=True)
class Limits:
    """From where on a figure makes a timing doubtful. Shares are medians over the run's samples, in percent.

    `others_cpu`: the product's own services (tracking server, scheduler, page) take up to 14% of a machine with two
    cores while a run goes on, and a sixteenth of that of one with 32; they are there in every run that is compared.

    `gpu_share` is the part of the samples in which something must be seen on a GPU: one sample of a power limit while
    the run starts says nothing of its training. `least_samples` is how many the range of a clock needs.
    """

    others_cpu: float = 15.0
    runnable_per_cpu: float = 1.5
    steal: float = 2.0
    throttled: float = 1.0
    clock_range: float = 0.10
    gpu_share: float = 0.05
    least_samples: int = 5
    drift: float = 0.02
    drift_t: float = 3.0
    short_seconds: float = 1.0
    relative_se: float = 0.05


LIMITS = Limits()
THINNED = 1.2
"""Windows that the steps of a run must have taken over those that are there, from which on some are missing."""
FLAG_COLUMNS = {"run_id": "str", "flag": "str", "excludes": "bool", "detail": "str"}

_SAMPLED = {
    "contention": (Metric.OTHERS_CPU, "other processes used the processors"),
    "oversubscribed": (Metric.RUNNABLE_THREADS, "more runnable threads than cores"),
    "steal": (Metric.CPU_STEAL, "the hypervisor took time away"),
    "throttled": (Metric.CPU_THROTTLED, "the control group's quota held the run back"),
}
_ON_GPUS = {
    "gpu_contention": (Metric.GPU_OTHERS, "other processes on the GPU"),
    "gpu_throttled": (Metric.GPU_THROTTLED, "the GPU throttled"),
    "gpu_clock": (Metric.GPU_CLOCK, "the GPU's clock moved"),
}
_MOST_GPUS = 64
METRICS = (
    Metric.WINDOW,
    *(metric for metric, _ in _SAMPLED.values()),
    *(template.format(index=index) for template, _ in _ON_GPUS.values() for index in range(_MOST_GPUS)),
)
"""What `flags` reads of a history."""

Found = Iterator[tuple[str, bool, str]]


def _whole(value: object) -> int:
    """A whole number of a nullable column; 0 when missing."""
    return 0 if pd.isna(value) else int(value)  # type: ignore[call-overload]


def _text(value: object) -> str:
    return "" if value is None or pd.isna(value) else str(value)  # type: ignore[call-overload]


def _from_columns(run: dict) -> Found:
    status = _text(run["status"])
    if status != RunStatus.FINISHED:
        live = status in (RunStatus.SCHEDULED, RunStatus.RUNNING)
        yield "unfinished", True, f"status {status}: {'still under way' if live else 'did not finish'}"
    asked, seen = _whole(run["total_replicas"]), _whole(run["replicas_in_sync"])
    if seen and asked and seen != asked:
        yield "replicas", True, f"asked for {asked} replicas, TensorFlow used {seen}"
    devices = _text(run["devices_seen"])
    if run["device"] == "gpu" and devices and "GPU" not in devices.upper():
        yield "device", True, f"asked for a GPU, TensorFlow saw {devices}"
    if run["simulated"] is True or run["simulated"] is np.True_:
        if asked > 1:
            detail = f"{asked} simulated replicas share the same hardware"
        else:
            detail = "simulated devices cut the hardware into parts"
        yield "simulated", True, detail
    threads, workers, cores = _whole(run["cpu_threads"]), max(_whole(run["workers"]), 1), _whole(run["cpu_count"])
    if cores and threads * workers > cores:
        yield "oversubscribed", True, f"{workers} x {threads} threads on {cores} CPUs"
    if run["profiler"] is True or run["profiler"] is np.True_:
        yield "profiler", True, "TensorFlow's profiler was on"
    if FROM_PTX in _text(run["notice"]):
        yield "compiled_kernels", False, "its start-up holds compiling the GPU's kernels: no whole run is made of it"
    if _text(run["notice"]):
        yield "notice", False, _text(run["notice"])


def _from_samples(samples: dict[str, np.ndarray], limits: Limits) -> Found:
    thresholds = {
        "contention": limits.others_cpu,
        "oversubscribed": limits.runnable_per_cpu,
        "steal": limits.steal,
        "throttled": limits.throttled,
    }
    for flag, (metric, words) in _SAMPLED.items():
        values = samples.get(metric)
        if values is not None and np.median(values) > thresholds[flag]:
            unit = " a core" if flag == "oversubscribed" else "%"
            yield flag, True, f"{words}: {np.median(values):.3g}{unit} (limit {thresholds[flag]:g}{unit})"
    for flag, (template, words) in _ON_GPUS.items():
        index = 0
        while (values := samples.get(template.format(index=index))) is not None:
            if flag == "gpu_clock":
                low, high = np.quantile(values, [0.05, 0.95])
                moved = high > 0 and (high - low) / high > limits.clock_range
                if moved and len(values) >= limits.least_samples:
                    yield flag, True, f"{words}: GPU {index} between {low:.0f} and {high:.0f} MHz"
            elif np.mean(values > 0) > limits.gpu_share:
                yield flag, True, f"{words}: GPU {index}, in {np.mean(values > 0):.0%} of the samples"
            index += 1


def _from_timing(state: dict, limits: Limits) -> Found:
    if not state["steady"]:
        yield "no_steady_state", True, _text(state["reason"])
        return
    drift, t = state["drift"], state["drift_t"]
    if abs(drift) > limits.drift and abs(t) > limits.drift_t:
        word = "slower" if drift > 0 else "faster"
        yield "drift", True, f"steady windows became {abs(drift):.1%} {word} from the first half to the second"
    if state["relative_se"] > limits.relative_se:
        # Equal windows on a quiet machine agree to far better: something else ran, recorded or not.
        yield "noisy", True, f"throughput is known to {state['relative_se']:.1%} only (limit {limits.relative_se:.0%})"
    seconds = state["steady_seconds"]
    if seconds < limits.short_seconds:
        yield "short", False, f"only {seconds:.2g} s of steady training"


def _thinned(run: dict, windows: np.ndarray) -> Found:
    """Whether fewer windows are there than the run must have had: none is longer than its steps per execution."""
    longest = run["steps_per_execution"]
    if len(windows) and not pd.isna(longest) and windows.max() > THINNED * len(windows) * float(longest):
        yield "sampled", False, f"only {len(windows):,} of its windows were read: seconds of warm-up are those of these"


def flags(runs: pd.DataFrame, steady: pd.DataFrame, history: pd.DataFrame, limits: Limits = LIMITS) -> pd.DataFrame:
    """Every flag of every run.

    Args:
        runs: rows of RUN_COLUMNS.
        steady: frame of `timing.steady_states` for these runs.
        history: long frame [run_id, metric, step, value, timestamp]; its `system/...` metrics are used.
        limits: from where on a figure is doubtful.

    Returns:
        [run_id, flag, excludes, detail], in the order of `runs`; no row for a run without a flag. `excludes` is
        whether the run stays out of figures; the others only inform.
    """
    system = history[history["metric"].str.startswith(Metric.SYSTEM_PREFIX) & np.isfinite(history["value"])]
    samples: dict[str, dict[str, np.ndarray]] = {}
    for (run_id, metric), values in system.groupby(["run_id", "metric"], sort=False)["value"]:
        samples.setdefault(str(run_id), {})[str(metric)] = values.to_numpy(float)
    states = {row["run_id"]: row for row in steady.to_dict("records")}
    windows = history[history["metric"] == Metric.WINDOW].groupby("run_id")["step"].unique()
    rows = []
    for run in runs.to_dict("records"):
        run_id = run["run_id"]
        found = [*_from_columns(run), *_from_samples(samples.get(run_id, {}), limits)]
        found += _thinned(run, windows.get(run_id, np.array([])))
        state = states.get(run_id)
        if state is not None:
            found += _from_timing(state, limits)
        rows += [(run_id, *flag) for flag in found]
    return pd.DataFrame(rows, columns=list(FLAG_COLUMNS)).astype(FLAG_COLUMNS)


def unchecked(run: pd.Series, history: pd.DataFrame) -> list[str]:
    """What could not be checked for one run because it was not recorded, in words.

    Args:
        run: one row of RUN_COLUMNS.
        history: long frame; may hold other runs.
    """
    metrics = set(history.loc[history["run_id"] == run["run_id"], "metric"])
    checks = list(_SAMPLED.values())
    if run["device"] == "gpu":
        checks += [(template.format(index=0), words) for template, words in _ON_GPUS.values()]
    missing = [f"{words} ({metric})" for metric, words in checks if metric not in metrics]
    return missing + [f"{words} ({name})" for name, words in _COLUMN_CHECKS.items() if pd.isna(run[name])]


_COLUMN_CHECKS = {
    "cpu_count": "more threads than CPUs",
    "profiler": "profiler on",
    "replicas_in_sync": "as many replicas as asked for",
}


def included(runs: pd.DataFrame, flagged: pd.DataFrame, put_back: frozenset[str] = frozenset()) -> pd.Series:
    """Which runs may be drawn: those without an excluding flag, and those a person put back by hand.

    A run without a steady state cannot be put back: there is no number to draw.

    Returns:
        bool series indexed by run_id.
    """
    excluded = set(flagged.loc[flagged["excludes"], "run_id"])
    without_number = set(flagged.loc[flagged["flag"] == "no_steady_state", "run_id"])
    kept = [
        run_id not in excluded or (run_id in put_back and run_id not in without_number) for run_id in runs["run_id"]
    ]
    return pd.Series(kept, index=pd.Index(runs["run_id"], name="run_id"), dtype=bool)
