"""Fills a real MLflow store with runs as the product writes them, by the names of `training/names.py`."""

import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from mlflow.entities import Metric as Point
from mlflow.entities import Param, RunTag

from experiments import queue
from experiments.settings import Settings
from training.names import PLACEMENT_COLUMNS, Artifact, Metric, Phase, RunStatus, Tag
from training.run_folder import RunFolder
from training.spec import RunSpec

NASTY_NAMES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "$a$_b_",
    "[x](javascript:1)",
    ":red[x]",
    "**b**",
    ":smile: :material/home:",
    "https://example.org & <b>`code`</b>",
)
"""What people may call a run, and what must be shown as typed."""

CURVE = {
    Metric.LOSS: [0.52, 0.34, 0.29, 0.26, 0.24],
    Metric.ACCURACY: [0.81, 0.875, 0.892, 0.904, 0.912],
    Metric.VAL_LOSS: [0.39, 0.33, 0.30, 0.29, 0.285],
    Metric.VAL_ACCURACY: [0.857, 0.878, 0.889, 0.896, 0.899],
}

PLACEMENT = pd.DataFrame(
    [
        ("sequential/conv2d/convolution", "Conv2D", "CPU:0", "graph", "compute", "conv2d", 4),
        ("sequential/conv2d_1/convolution", "Conv2D", "CPU:1", "graph", "compute", "conv2d_1", 4),
        ("sequential/dense/MatMul", "MatMul", "CPU:0", "graph", "compute", "dense", 6),
        ("gradients/dense/MatMul_grad", "MatMul", "CPU:1", "graph", "compute", "dense", 6),
        ("VarHandleOp", "VarHandleOp", "CPU:0", "eager", "compute", "", 40),
        ("ReadVariableOp", "ReadVariableOp", "CPU:0", "graph", "compute", "", 120),
        ("AssignVariableOp", "AssignVariableOp", "CPU:1", "graph", "compute", "", 96),
        ("IteratorGetNext", "IteratorGetNext", "CPU:0", "graph", "input", "", 2),
        ("TensorSliceDataset", "TensorSliceDataset", "CPU:0", "eager", "input", "", 1),
    ],
    columns=list(PLACEMENT_COLUMNS),
)


def history_of(epochs: int, steps_per_epoch: int = 937, curve: Mapping[str, list[float]] = CURVE) -> list[Point]:
    """The metric points of a run that has trained so many epochs."""
    now = round(time.time() * 1000)
    once = {
        Metric.TIME_QUEUE: 1.8,
        Metric.TIME_STARTUP: 4.6,
        Metric.TIME_DATA: 0.42,
        Metric.TIME_BUILD: 0.9,
        Metric.TIME_FIRST_STEP: 1.31,
    }
    points = [Point(name, seconds, now, 0) for name, seconds in once.items()]
    for epoch in range(epochs):
        train = 10.2 if epoch == 0 else 8.0 + 0.06 * math.sin(epoch)
        values = {name: series[epoch % len(series)] for name, series in curve.items()} | {
            Metric.TIME_EPOCH_TRAIN: train,
            Metric.TIME_EPOCH_VALIDATION: 0.9,
            Metric.TIME_INPUT_WAIT: 0.11,
            Metric.EXAMPLES_PER_SECOND: steps_per_epoch * 64 / train,
        }
        points += [Point(name, value, now + epoch * 9_000, epoch) for name, value in values.items()]
        for window in range(steps_per_epoch // 32):
            rate = 5_200 + 30 * window if epoch == 0 and window < 20 else 7_450 + 160 * math.sin(window + epoch)
            points.append(Point(Metric.WINDOW, rate, now + window * 300, epoch * steps_per_epoch + 32 * (window + 1)))
    return points


SEEN = {
    Tag.JIT_COMPILE: "false",
    Tag.CPU_MODEL: "AMD EPYC",
    Tag.CPU_COUNT: "8",
    Tag.HOST: "bench-1",
    Tag.TENSORFLOW: "2.21.0",
    Tag.KERAS: "3.15.1",
    Tag.ONEDNN: "true",
}
GPU_SEEN = {**SEEN, Tag.GPU_MODEL: "NVIDIA H200"}


def timed(rate: float, epochs: int = 3, startup: float = 4.6, seed: int = 0, examples: int = 60_000) -> list[Point]:
    """The points of a run with a steady state at so many examples per second; windows spread by 1%."""
    noise = np.random.default_rng(seed)
    now = round(time.time() * 1000)
    once = {
        Metric.TIME_QUEUE: 1.0,
        Metric.TIME_STARTUP: startup,
        Metric.TIME_DATA: 0.4,
        Metric.TIME_BUILD: 0.8,
        Metric.TIME_FIRST_STEP: 1.5,
        Metric.TIME_TOTAL: startup + 2.7 + epochs * (examples / rate + 0.9),
    }
    points = [Point(name, seconds, now, 0) for name, seconds in once.items()]
    points.append(Point(Metric.WINDOW, rate / 40, now, 1))
    for epoch in range(epochs):
        train = examples / rate
        values = {
            Metric.TIME_EPOCH_TRAIN: train,
            Metric.TIME_EPOCH_VALIDATION: 0.9,
            Metric.TIME_INPUT_WAIT: 0.01 * train,
            Metric.EXAMPLES_PER_SECOND: rate,
        }
        points += [Point(name, value, now + epoch, epoch) for name, value in values.items()]
        points += [
            Point(Metric.WINDOW, rate * (1 + 0.01 * noise.standard_normal()), now + window, step)
            for window, step in enumerate(range(1 + epoch * 640 + 32, 1 + (epoch + 1) * 640 + 1, 32))
        ]
    return points


def add_timed(
    settings: Settings, spec: RunSpec, rate: float, *, startup: float = 4.6, seed: int = 0, **tags: str
) -> str:
    """Writes a finished run that trained at so many examples per second, on the machine of SEEN or GPU_SEEN."""
    seen = {**(GPU_SEEN if spec.device == "gpu" else SEEN), Tag.REPLICAS_IN_SYNC: str(spec.total_replicas)}
    return add_run(settings, spec, points=timed(rate, startup=startup, seed=seed), tags=seen | tags)


def cpu_and_gpu(settings: Settings, repeats: int = 3, group: str = "cpu against gpu") -> dict[str, list[str]]:
    """The guide's comparison: equal runs on the CPU and on a GPU that is eight times as fast. Gives device -> ids."""
    return {
        device: [
            add_timed(
                settings,
                RunSpec(device=device, group=group, epochs=3, name=f"{device} {index}"),
                rate * (1 + 0.005 * index),
                startup=startup,
                seed=index,
                **{Tag.PLAN: "cpu_against_gpu"},
            )
            for index in range(repeats)
        ]
        for device, rate, startup in (("cpu", 5_000.0, 4.0), ("gpu", 40_000.0, 9.0))
    }


def gpu_scaling(settings: Settings, counts: Sequence[int] = (1, 2, 4, 8), repeats: int = 3) -> dict[int, list[str]]:
    """A strong scaling curve by Amdahl's law with 8% that does not scale. Gives number of replicas -> ids."""
    return {
        count: [
            add_timed(
                settings,
                RunSpec(
                    device="gpu",
                    strategy="mirrored" if count > 1 else "one_device",
                    replicas=count,
                    global_batch_size=512,
                    group="strong scaling",
                    epochs=3,
                ),
                20_000.0 * count / (1 + 0.08 * (count - 1)) * (1 + 0.006 * (index - 1)),
                seed=10 * count + index,
            )
            for index in range(repeats)
        ]
        for count in counts
    }


_AT_ONCE = 800  # MLflow takes 1,000 params, tags and metrics together


def add_run(
    settings: Settings,
    spec: RunSpec,
    status: RunStatus = RunStatus.FINISHED,
    *,
    points: list[Point] | None = None,
    tags: Mapping[str, str] | None = None,
    placement: pd.DataFrame | None = None,
    log: str = "",
    environment: Mapping[str, object] | None = None,
) -> str:
    """Writes one run and returns its id."""
    client = settings.client()
    run = client.create_run(settings.experiment_id(), run_name=spec.display_name)
    run_id: str = run.info.run_id
    all_tags = {
        Tag.USER: spec.user,
        Tag.GROUP: spec.group,
        Tag.SIMULATED: "true" if spec.simulated else "false",
        Tag.SUBMISSION: run_id,
        Tag.DEVICES_ASKED: spec.devices_asked,
        Tag.PER_REPLICA_BATCH_SIZE: str(spec.per_replica_batch_size),
        **(tags or {}),
    }
    points = points or []
    client.log_batch(
        run_id,
        metrics=points[:_AT_ONCE],
        params=[Param(name, value[:6_000]) for name, value in queue.params(spec).items()],
        tags=[RunTag(name, value) for name, value in all_tags.items() if value],
    )
    for start in range(_AT_ONCE, len(points), _AT_ONCE):
        client.log_batch(run_id, metrics=points[start : start + _AT_ONCE])
    client.log_text(run_id, spec.to_json(), Artifact.SPEC)
    if environment is not None:
        client.log_text(run_id, json.dumps(environment), Artifact.ENVIRONMENT)
    if placement is not None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / Path(Artifact.PLACEMENT_TABLE).name
            placement.to_parquet(file)
            client.log_artifact(run_id, str(file), Artifact.PLACEMENT_DIR)
    if log and status.is_terminal:
        client.log_text(run_id, log, f"{Artifact.LOG_DIR}/worker-0.log")
    elif log:
        stderr = RunFolder.of(settings.runs_folder, run_id).worker(0).stderr
        stderr.parent.mkdir(parents=True)
        stderr.write_text(log, encoding="utf-8")
    if status.is_terminal:
        client.set_terminated(run_id, status)
    else:
        client.update_run(run_id, status=status)
    return run_id


def add_many(settings: Settings, count: int) -> None:
    """Writes many small finished runs at once, straight into the database: one by one they would take minutes."""
    import sqlite3
    from contextlib import closing

    assert settings.database is not None
    template = add_run(settings, RunSpec(name="template", user="seed"))
    with closing(sqlite3.connect(settings.database)) as connection, connection:
        connection.execute("DELETE FROM latest_metrics WHERE run_uuid = ?", (template,))
        columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        row = dict(
            zip(
                columns,
                connection.execute("SELECT * FROM runs WHERE run_uuid = ?", (template,)).fetchone(),
                strict=True,
            )
        )
        tags = connection.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (template,)).fetchall()
        params = connection.execute("SELECT key, value FROM params WHERE run_uuid = ?", (template,)).fetchall()
        for index in range(count - 1):
            run_id = f"{index:032x}"
            copy = row | {
                "run_uuid": run_id,
                "name": f"run {index}",
                "start_time": row["start_time"] - 1_000 * (index + 1),
            }
            marks = ", ".join("?" for _ in columns)
            connection.execute(f"INSERT INTO runs VALUES ({marks})", [copy[name] for name in columns])
            connection.executemany(
                "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)",
                [(key, value, run_id) for key, value in tags],
            )
            connection.executemany(
                "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
                [(key, value, run_id) for key, value in params],
            )


def showcase(settings: Settings) -> dict[str, str]:
    """A store as a team has it after a morning: one run of each kind. Returns name -> run id."""
    environment = {
        "python": "3.11.9",
        "tensorflow": "2.21.0",
        "keras": "3.15.1",
        "cpu": {"model": "AMD EPYC", "count": 2},
    }
    seen = {
        Tag.REPLICAS_IN_SYNC: "1",
        Tag.DEVICES_SEEN: "CPU:0",
        Tag.JIT_COMPILE: "false",
        Tag.PARAMETERS: "93322",
        Tag.STEPS_PER_EPOCH: "937",
        Tag.HOST: "bench-1",
    }
    log = "\n".join(f"epoch {n}: loss {0.5 / (n + 1):.4f}" for n in range(400))
    ids = {}
    ids["finished"] = add_run(
        settings,
        RunSpec(user="mei", group="cpu against gpu", manual_placement={"dense": "/CPU:0"}),
        points=[*history_of(5), Point(Metric.TIME_TOTAL, 52.4, round(time.time() * 1000), 0)],
        tags=seen,
        placement=PLACEMENT,
        log=log,
        environment=environment,
    )
    ids["simulated"] = add_run(
        settings,
        RunSpec(strategy="mirrored", replicas=2, logical_devices=2, user="omar"),
        points=[*history_of(5), Point(Metric.TIME_TOTAL, 61.0, round(time.time() * 1000), 0)],
        tags={**seen, Tag.REPLICAS_IN_SYNC: "2", Tag.DEVICES_SEEN: "CPU:0, CPU:1"},
        placement=PLACEMENT,
        log=log,
        environment=environment,
    )
    broken = {**CURVE, Metric.LOSS: [2.3, math.nan, math.nan], Metric.VAL_LOSS: [2.1, math.inf, math.nan]}
    ids["failed"] = add_run(
        settings,
        RunSpec(name="lr 1e6", learning_rate=1e6, user="mei"),
        RunStatus.FAILED,
        points=history_of(3, curve=broken),
        tags={
            **seen,
            Tag.REASON: "worker 0 exited 1 in epoch 4: ResourceExhaustedError: OOM when allocating [65536,26]",
        },
        log="Traceback (most recent call last):\n  ...\nResourceExhaustedError",
    )
    ids["killed"] = add_run(
        settings, RunSpec(name="too long", user="omar"), RunStatus.KILLED, tags={Tag.REASON: "stopped on request"}
    )
    ids["nasty"] = add_run(
        settings, dataclasses.replace(RunSpec(), name=NASTY_NAMES[0], user=NASTY_NAMES[1], group=NASTY_NAMES[5])
    )
    ids["running"] = add_run(
        settings,
        RunSpec(name="watch me", user="mei", epochs=8),
        RunStatus.RUNNING,
        points=history_of(3),
        tags={**seen, Tag.PHASE: Phase.TRAINING},
        log=log,
        environment=environment,
    )
    ids["waiting"] = add_run(
        settings,
        RunSpec(name="next in line", strategy="multi_worker_mirrored", workers=2, user="omar"),
        RunStatus.SCHEDULED,
        tags={Tag.REASON: "waiting for 2 CPUs"},
    )
    return ids
