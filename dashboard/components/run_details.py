"""The parts of a run's page below its curves: times, devices, spec, environment, log. Each reads, then draws."""

import json
import math
import typing
from collections.abc import Mapping

import pandas as pd
import streamlit as st

from dashboard import data
from dashboard.components import address, chart, status
from dashboard.components.spec_values import command
from dashboard.components.text import safe_file_name
from dashboard.figures import placement as placement_figures
from dashboard.figures import timing
from experiments.analysis.placement import asked_and_actual, asked_of, per_device, summary
from experiments.wording import count, duration, number, percent
from training.names import Tag
from training.spec import RunSpec, SpecError

Row = Mapping[str, typing.Any]
OPS_CONFIG: dict[str, typing.Any] = {
    "name": st.column_config.TextColumn("Op", width="large"),
    "op_type": "Type",
    "device": "Device",
    "source": "Graph or eager",
    "role": "Role",
    "layer": "Layer",
    "count": st.column_config.NumberColumn("Times logged", format="localized"),
}
"""What the columns of a placement table are called."""


def show_times(run: Row, history: pd.DataFrame) -> None:
    """Phases, epochs and windows."""
    phases = timing.phase_table(history)
    if phases.empty:
        live = status.is_live(run["status"])
        st.caption("Times appear here once the process has started." if live else "No times were recorded.")
        return
    name = f"{run['name'] or run['run_id']}"
    chart.show(timing.phase_figure(phases), f"{name}-phases", "run_phases")
    steady = data.steady(run)
    epochs = timing.epoch_table(history)
    left, right = st.columns(2)
    with left:
        batch: float = math.nan if pd.isna(run["global_batch_size"]) else float(run["global_batch_size"])
        windows = timing.window_table(history, timing.warm_up_count(history, steady, batch))
        figure = timing.window_figure(windows, steady["throughput"], steady["reason"])
        chart.show(figure, f"{name}-windows", "run_windows")
        for notice in (timing.windows_notice(windows), history.attrs.get("notice", "")):
            if notice:
                st.caption(notice)
    with right:
        if len(epochs):
            chart.show(timing.input_wait_figure(epochs), f"{name}-input-wait", "run_input_wait")
    first, second = st.columns(2)
    with first:
        st.caption("By phase")
        st.dataframe(
            pd.DataFrame(
                {
                    "phase": phases["phase"],
                    "time": phases["seconds"].map(duration),
                    "share": phases["share"].map(percent),
                }
            ),
            hide_index=True,
            height="content",
            alt="Time by phase",
            column_config={"phase": "Phase", "time": "Time", "share": "Share"},
        )
    with second:
        st.caption("By epoch")
        st.dataframe(_epochs_as_text(epochs), hide_index=True, alt="Time by epoch")
    with st.container(horizontal=True, gap="small"):
        chart.download(lambda: phases, f"{name}-phases", "run_phases_csv", "Phases (CSV)")
        chart.download(lambda: epochs, f"{name}-epochs", "run_epochs_csv", "Epochs (CSV)")
        chart.download(lambda: windows, f"{name}-windows", "run_windows_csv", "Windows (CSV)")


def _epochs_as_text(epochs: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Epoch": [
                f"{epoch} (warm-up)" if warm_up else str(epoch)
                for epoch, warm_up in zip(epochs["epoch"], epochs["warm_up"], strict=True)
            ],
            "Training": epochs["train"].map(duration),
            "of it waiting": epochs["input_wait"].map(duration),
            "Validation": epochs["validation"].map(duration),
            "Examples/s": epochs["examples_per_second"].map(number),
        }
    )


def show_devices(run: Row, tags: Mapping[str, str]) -> None:
    """Asked and seen, and on which device the ops ran."""
    st.dataframe(
        asked_and_seen(run, tags),
        hide_index=True,
        height="content",
        placeholder="–",
        alt="What was asked and what TensorFlow reports",
    )
    if tags.get(Tag.GPU_IDS):
        st.text(tags[Tag.GPU_IDS])
    placement = data.placement(run["run_id"])
    if placement.empty:
        st.caption(
            "The placement of the ops appears here when the run has ended."
            if not run["ended"]
            else "No placement was recorded: the run logged none, or ended before its first step."
        )
        return
    if run["ended"]:
        st.page_link(
            "app_pages/placement.py",
            label="Its placement in full, and against another run",
            icon=":material/account_tree:",
            query_params={"run": run["run_id"]},
        )
    columns = st.columns([1, 2])
    with columns[0]:
        st.caption("Ops on each device")
        st.dataframe(
            placement_figures.device_table(per_device(placement)),
            hide_index=True,
            height="content",
            alt="Ops on each device",
            column_config={
                "device": "Device",
                "compute": st.column_config.NumberColumn("Compute", format="localized"),
                "input": st.column_config.NumberColumn("Input", format="localized"),
                "total": st.column_config.NumberColumn("In all", format="localized"),
            },
        )
        _show_manual(run, placement)
    with columns[1]:
        counts = summary(placement)
        for role in ("compute", "input"):
            table = placement_figures.ops_table(counts, role)
            if len(table):
                named = f"{run['name'] or run['run_id']}-{role}-ops"
                chart.show(placement_figures.ops_figure(table, role), named, f"run_ops_{role}")
    with st.expander(f"Every op ({count(len(placement), 'row')})", key="run_ops_all"):
        shown = placement.sort_values("count", ascending=False, kind="stable").head(1_000)
        if len(shown) < len(placement):
            st.caption(f"The {len(shown):,} commonest; the download holds all.")
        st.dataframe(shown, hide_index=True, alt="Ops and their devices", column_config=OPS_CONFIG)


def _show_manual(run: Row, placement: pd.DataFrame) -> None:
    asked = asked_of(data.record(run["run_id"]))
    if not asked:
        return
    st.caption("Manual placement")
    st.dataframe(
        layers_as_text(asked, placement),
        hide_index=True,
        height="content",
        alt="Manual placement, asked and actual",
    )


def layers_as_text(asked: Mapping[str, str], placement: pd.DataFrame) -> pd.DataFrame:
    """Where each layer that was placed by hand ran, as people read it.

    Args:
        asked: layer -> device.
        placement: its placement table.
    """
    table = asked_and_actual(placement, dict(asked))
    return pd.DataFrame(
        {
            "Layer": table["layer"],
            "Asked": table["asked"],
            "Ran on": table["actual"],
            "Ops": table["ops"],
            "Elsewhere": table["elsewhere"],
            "Kept": [
                "✓ kept" if agrees else "✕ not kept" if ops else "– no op seen"
                for agrees, ops in zip(table["agrees"], table["ops"], strict=True)
            ],
        }
    )


def asked_and_seen(run: Row, tags: Mapping[str, str]) -> pd.DataFrame:
    """What was asked beside what TensorFlow reports: columns What, Asked, Seen, and whether they agree."""

    def text(value: typing.Any) -> str:
        return "" if value is None or pd.isna(value) else str(value)

    xla = {True: "on", False: "off"}
    resolved = {"true": "on", "false": "off"}.get(text(run["jit_compile_resolved"]).lower(), "")
    asked_xla = "" if run["jit_compile"] is None else xla[bool(run["jit_compile"])]
    rows = [
        ("Devices", text(run["devices_asked"]), text(run["devices_seen"]), True),
        ("Replicas in sync", text(run["total_replicas"]), text(run["replicas_in_sync"]), True),
        ("XLA (jit_compile)", asked_xla, resolved, True),
        ("Examples per replica and step", text(run["per_replica_batch_size"]), "", None),
        ("Parameters of the model", "", _thousands(tags.get(Tag.PARAMETERS, "")), None),
    ]
    listed = [
        (what, asked, seen, "" if not (comparable and asked and seen) else "✓" if _agree(asked, seen) else "≠ differs")
        for what, asked, seen, comparable in rows
    ]
    return pd.DataFrame(listed, columns=["What", "Asked", "Seen by TensorFlow", "Agree"])


def _agree(asked: str, seen: str) -> bool:
    """Whether all that was asked is among what is seen: a GPU's run sees the CPU, too.

    Args:
        asked: such as `2 workers x CPU:0` or `CPU:0, CPU:1 (simulated: 2 logical devices on one CPU)`.
        seen: such as `CPU:0, CPU:1`, of each worker.
    """
    names = asked.partition(" (")[0].rpartition(" workers x ")[2]
    first, to, last = names.partition(" to ")
    if to:
        kind = first.partition(":")[0]
        names = ", ".join(f"{kind}:{index}" for index in range(int(last.partition(":")[2]) + 1))
    return set(names.split(", ")) <= set(seen.split(", "))


def _thousands(text: str) -> str:
    return f"{int(text):,}" if text.isascii() and text.isdecimal() else text


def show_spec(run: Row, tags: Mapping[str, str]) -> None:
    """Every field of the spec, the run it was taken from, the command that starts it again, and the JSON to keep."""
    if origin := tags.get(Tag.RESTARTED_FROM):
        st.page_link(
            "app_pages/run.py",
            label=f"Started from the spec of run {origin[:8]}",
            icon=":material/history:",
            query_params={"run": origin},
        )
    try:
        spec = data.spec(run["run_id"])
    except (data.UnknownRun, SpecError) as error:
        st.text(f"This run has no spec that can be read: {error}")
        return
    st.code(command(spec), language="bash", wrap_lines=True)
    default = RunSpec().to_dict()
    values = [
        (name, _plain(value), "" if value == default[name] else "changed") for name, value in spec.to_dict().items()
    ]
    values.sort(key=lambda row: row[2] == "")  # what was chosen first; the order of the spec otherwise
    st.dataframe(
        pd.DataFrame(values, columns=["Field", "Value", "From the default"]),
        hide_index=True,
        height="content",
        alt="Spec",
    )
    st.download_button(
        "Spec (JSON)",
        spec.to_json(),
        file_name=f"{safe_file_name(run['name'])}-spec.json",
        mime="application/json",
        icon=":material/download:",
        on_click="ignore",
    )


def _plain(value: typing.Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def show_environment(run: Row) -> None:
    """Where the run ran, as one table."""
    found = data.environment(run["run_id"])
    if not found:
        st.caption("The environment is noted when the process has started TensorFlow.")
        return
    st.dataframe(
        pd.DataFrame(flattened(found), columns=["Name", "Value"]),
        hide_index=True,
        height="content",
        alt="Environment",
        column_config={"Name": st.column_config.TextColumn(width=320)},
    )


def flattened(values: Mapping[str, typing.Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as (dotted name, text) pairs."""
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += flattened(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", _plain(value)))
    return pairs


def show_log(run: Row) -> None:
    """The end of what a worker printed, as plain text; placement lines have a place of their own."""
    workers = int(run["workers"] or 1)
    worker = 0
    with st.container(horizontal=True, vertical_alignment="bottom"):
        if workers > 1:
            indices = list(map(str, range(workers)))
            named = {index: f"worker {index}" for index in indices}
            worker = int(address.select("Worker", indices, "run_worker", "run_log_worker", named, width=160))
        st.download_button(
            "Log",
            lambda: "\n".join(data.log(run["run_id"], worker, data.LOG_LINES_DOWNLOADED)),
            file_name=f"{safe_file_name(run['name'])}-worker-{worker}.log",
            mime="text/plain",
            icon=":material/download:",
            on_click="ignore",
        )
        st.download_button(
            "Placement table (CSV)",
            lambda: data.placement(run["run_id"]).to_csv(index=False),
            file_name=f"{safe_file_name(run['name'])}-placement.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
    lines = data.log(run["run_id"], worker)
    if not lines:
        st.caption("It left no log that can be read here." if run["ended"] else "Nothing has been printed yet.")
        return
    st.caption(f"The end of what worker {worker} printed, placement lines left out; the download holds more.")
    with st.container(height=480, border=False, autoscroll=True):
        st.code("\n".join(lines), language=None, wrap_lines=True)
