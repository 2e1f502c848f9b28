"""`make bench`: measures the figures one after the other and prints a Markdown table.

python -m tests.benchmarks [--rounds N] [--epochs N] [--only throughput|start|workers|equal]
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.analysis.speedup import Called, ratio_of
from tests.benchmarks.measure import (
    ROOT,
    Figure,
    TrainingProcesses,
    module,
    rate_between,
    say,
    steady,
)
from tests.benchmarks.stack import running_stack
from training.names import Metric
from training.spec import RunSpec
from training.worker.gang import ONEDNN

EPOCHS = 4
COMMAND = "the command"
HEADER = "| what | ratio | each round | target | verdict | behind it |\n|---|---|---|---|---|---|"


def throughput(rounds: int, epochs: int) -> list[Figure]:
    """The harness against the guide's code, and with everything on against everything off.

    All of Fashion-MNIST, batch 64. The order turns round by round, so that a machine that gets slower favours none.
    """
    fields = {"dataset": "fashion_mnist", "epochs": epochs}
    names = ["guide", "on", "off"]
    rates: dict[str, list[float]] = {name: [] for name in names}
    peak = 0.0
    for number in range(rounds):
        for name in names[number % 3 :] + names[: number % 3]:
            if name == "guide":
                found = module("tests.benchmarks.guide", str(epochs))
                rates[name].append(steady(found["epochs"], found["examples"]))
            elif name == "off":
                found = module("tests.benchmarks.bare_loop", json.dumps(fields), environment={ONEDNN: "1"})
                rates[name].append(steady(found["epochs"], found["examples"]))
            else:
                record, seconds = _instrumented(fields)
                rates[name].append(steady(seconds, int(record["tags"]["examples_per_epoch"])))
                peak = max(peak, record["metrics"]["system/peak_process_memory_megabytes"])
            say(f"round {number + 1}: {name} {rates[name][-1]:,.0f} examples/s")
    guide, on, off = (rates[name] for name in names)

    def shown(which: list[float]) -> str:
        return f"{sorted(which)[len(which) // 2]:,.0f}"

    return [
        Figure(
            "(a) steady throughput, harness / the guide's code",
            tuple(mine / theirs for mine, theirs in zip(on, guide, strict=True)),
            1.30,
            note=f"{shown(on)} against {shown(guide)} examples/s",
        ),
        Figure(
            "(b) steady throughput, instrumentation on / off",
            tuple(mine / bare for mine, bare in zip(on, off, strict=True)),
            0.99,
            note=f"{shown(on)} against {shown(off)} examples/s",
        ),
        Figure("peak memory of a process (MB), batch 64, the whole set", (peak,), 1500, at_most=True, note="resident"),
    ]


def start(rounds: int) -> list[Figure]:
    """`run` submitted to first step done, through page's queue, controller and Ray, over a bare script's start."""
    from_submission, from_command = [], []
    ours, bare = [], []
    parts: dict[str, list[float]] = {}
    with running_stack() as environment:
        for number in range(rounds):
            for which in ("bare", "ours") if number % 2 else ("ours", "bare"):
                if which == "bare":
                    began = time.time()
                    found = module("tests.benchmarks.guide", "1", "20")
                    bare.append(found["first_step_at"] - began)
                else:
                    seconds, found_parts = _submitted_to_first_step(environment)
                    ours.append(seconds)
                    for name, value in found_parts.items():
                        parts.setdefault(name, []).append(value)
            from_command.append(ours[-1] / bare[-1])
            from_submission.append((ours[-1] - parts[COMMAND][-1]) / bare[-1])
            say(f"round {number + 1}: first step after {ours[-1]:.1f} s, bare script {bare[-1]:.1f} s")
    where = ", ".join(f"{name} {sorted(values)[len(values) // 2]:.1f} s" for name, values in parts.items())
    bare_s = f"the bare script {sorted(bare)[len(bare) // 2]:.1f} s"
    return [
        Figure(
            "(c) submitted to first step / bare script",
            tuple(from_submission),
            1.5,
            at_most=True,
            note=f"{where}; {bare_s}",
        ),
        Figure(
            "(c) the same from the start of the command `run`",
            tuple(from_command),
            1.5,
            at_most=True,
            note=f"{sorted(ours)[len(ours) // 2]:.1f} s; {COMMAND} imports MLflow's client before it can submit",
        ),
    ]


def workers(rounds: int) -> list[Figure]:
    """Two one-core workers over two independent one-core processes at the same time: what the hardware allows."""
    figures = []
    for batch, steps, target in ((256, 60, 0.92), (64, 240, 0.87)):
        ratios, together, apart = [], [], []
        common = {
            "dataset": "fashion_mnist",
            "dataset_options": {"validation_examples": 64},
            "epochs": 3,
            "max_steps_per_epoch": steps,
            "cpu_threads": 1,
            "log_device_placement": False,
        }
        for number in range(rounds):
            for which in ("apart", "together") if number % 2 else ("together", "apart"):
                if which == "together":
                    fields = {"strategy": "multi_worker_mirrored", "workers": 2, "global_batch_size": 2 * batch}
                    run = TrainingProcesses(RunSpec.from_dict(common | fields))
                    run.wait()
                    windows = run.windows()
                    together.append(rate_between(windows, windows[0][0], windows[-1][1]))
                else:
                    spec = RunSpec.from_dict(common | {"global_batch_size": batch})
                    runs = [TrainingProcesses(spec, core) for core in (0, 1)]
                    for run in runs:
                        run.wait()
                    # Only while both were training: alone, a process has the whole memory bandwidth.
                    spans = [run.windows() for run in runs]
                    began, ended = max(span[0][0] for span in spans), min(span[-1][1] for span in spans)
                    apart.append(sum(rate_between(span, began, ended) for span in spans))
            ratios.append(together[-1] / apart[-1])
            say(f"round {number + 1}: batch {batch} a worker: {together[-1]:,.0f} together, {apart[-1]:,.0f} apart")
        note = f"{sorted(together)[len(together) // 2]:,.0f} against {sorted(apart)[len(apart) // 2]:,.0f} images/s"
        figures.append(Figure(f"(d) two workers / two independent, {batch} a worker", tuple(ratios), target, note=note))
    return figures


def equal(count: int) -> list[Figure]:
    """Equal runs, split into two halves in every way: how often a speedup is seen where there is none."""
    fields = {
        "dataset": "synthetic",
        "dataset_options": {"examples": 6_400, "validation_examples": 64},
        "epochs": 3,
        "steps_per_execution": 4,
    }
    with tempfile.TemporaryDirectory(prefix="speedup-lab-bench-") as home:
        spec = Path(home) / "spec.json"
        spec.write_text(RunSpec.from_dict(fields).to_json())
        environment = {"SPEEDUP_LAB_HOME": home, "MLFLOW_TRACKING_URI": ""}
        for number in range(count):
            module("experiments", "run", "--inline", "--spec", str(spec), "--json", environment=environment)
            say(f"equal run {number + 1} of {count}")
        speeds = np.array(list(module("tests.benchmarks.steady_throughput", environment=environment).values()))
    called = []
    for chosen in itertools.combinations(range(len(speeds)), len(speeds) // 2):
        half = np.isin(np.arange(len(speeds)), chosen)
        called.append(ratio_of(speeds[half], speeds[~half]).called in (Called.FASTER, Called.SLOWER))
    spread = speeds.std(ddof=1) / speeds.mean()
    in_order = ratio_of(speeds[::2], speeds[1::2])
    return [
        Figure(
            "(e) equal runs called different, over all ways to split them in halves",
            (float(np.mean(called)),),
            0.06,
            at_most=True,
            note=f"{len(speeds)} runs, {spread:.1%} apart; every other one against the rest: {in_order.sentence()}",
        )
    ]


def _instrumented(fields: dict) -> tuple[dict, list[float]]:
    """A run with everything on: its record, and the seconds of each epoch's training."""
    with tempfile.TemporaryDirectory(prefix="speedup-lab-bench-") as home:
        spec = Path(home) / "spec.json"
        spec.write_text(RunSpec.from_dict(fields).to_json())
        environment = {"SPEEDUP_LAB_HOME": home, "MLFLOW_TRACKING_URI": ""}
        record = module("experiments", "run", "--inline", "--spec", str(spec), "--json", environment=environment)
        return record, [value for _, value in _points(record["run_id"], "time/epoch_train", environment)]


def _submitted_to_first_step(environment: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Seconds from the command's start to the end of the first training step, by the run's journal, and their parts."""
    began = time.time()
    assignments = [
        "dataset=fashion_mnist",
        "epochs=1",
        "max_steps_per_epoch=20",
        "dataset_options.validation_examples=64",
    ]
    options = [part for text in assignments for part in ("--set", text)]
    record = module("experiments", "run", *options, "--json", environment=environment)
    seconds = min(at for at, _ in _points(record["run_id"], Metric.WINDOW, environment)) - began
    named = {
        "queue and Ray": Metric.TIME_QUEUE,
        "imports and devices": Metric.TIME_STARTUP,
        "data": Metric.TIME_DATA,
        "model": Metric.TIME_BUILD,
        "first step": Metric.TIME_FIRST_STEP,
    }
    parts = {name: record["metrics"][metric] for name, metric in named.items()}
    return seconds, {COMMAND: seconds - sum(parts.values()), **parts}


def _points(run_id: str, metric: str, environment: dict[str, str]) -> list[tuple[float, float]]:
    """(unix seconds, value) of a metric, by step. In a process of its own, which has that data folder."""
    script = (
        "import json, sys\n"
        "from experiments.results import history\n"
        "from experiments.settings import Settings\n"
        "points = history(Settings.from_environment(), sys.argv[1], [sys.argv[2]]).sort_values('step')\n"
        "seconds = [at.timestamp() for at in points['timestamp']]\n"
        "print(json.dumps(list(zip(seconds, points['value'].tolist()))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, run_id, metric],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [(at, value) for at, value in json.loads(done.stdout.strip().splitlines()[-1])]


PARTS = ("throughput", "start", "workers", "equal")


def main() -> int:
    """Measures and prints. Returns 0 when every target is met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each pair is measured (3)")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part")
    parser.add_argument(
        "--epochs", type=int, default=EPOCHS, help="epochs of the throughput runs, the first left out (4)"
    )
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[Figure]]] = {
        "throughput": lambda: throughput(options.rounds, options.epochs),
        "start": lambda: start(options.rounds),
        "workers": lambda: workers(options.rounds),
        "equal": lambda: equal(10),
    }
    figures = [figure for name in options.only or parts for figure in parts[name]()]
    print(HEADER)
    for figure in figures:
        print(figure.row())
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
