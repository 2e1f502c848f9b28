"""What the Scaling page says beside its figures: the points, the fitted law in words, the devices of a run."""

import pandas as pd
import streamlit as st

from dashboard.components import chart, note
from experiments.analysis import scaling, workers
from experiments.analysis.comparable import Thing
from experiments.analysis.curve import ScalingCurve
from experiments.analysis.evidence import Evidence
from experiments.analysis.scaling_fit import Fit
from experiments.analysis.scaling_laws import Scaling
from experiments.analysis.tables import labels_of
from experiments.wording import count, interval, number, percent, times
from training.spec_rules import Severity

_INTERVALS = ("interval of examples/s", "interval of speedup", "interval of efficiency")
"""Columns that are headed alike, each right of what it belongs to."""


def labels(runs: pd.DataFrame, found: pd.DataFrame) -> dict[str, str]:
    """Key -> what to call each curve, the one with the newest run first.

    Where two curves would be called the same, what tells their runs apart is added.

    Args:
        runs: rows of RUN_COLUMNS, newest first.
        found: frame of `scaling.curves` of these.
    """
    order = {run_id: place for place, run_id in enumerate(runs["run_id"])}
    ranked = found.assign(place=found["run_id"].map(order)).sort_values("place", kind="stable")
    # The run of several devices that is newest speaks for its curve: a run of one starts several curves.
    several = ranked[ranked["count"] > 1].drop_duplicates("key")
    told = labels_of(runs[runs["run_id"].isin(several["run_id"])])
    named: dict[str, str] = {}
    for row in several.to_dict("records"):
        kind = "strong" if Scaling(row["scaling"]) is Scaling.STRONG else "weak"
        counts = sorted({int(each) for each in found.loc[found["key"] == row["key"], "count"]})
        twins = several[several["label"] == row["label"]]
        more = f" – {told[row['run_id']]}" if len(twins) > 1 else ""
        named[row["key"]] = f"{row['label']} ({kind}, {', '.join(map(str, counts))}){more}"
    return named


def held(curve: ScalingCurve) -> str:
    """What stays the same along the curve, such as `fixed global batch of 64: strong scaling`."""
    kind, _, fixed = str(curve.scaling).partition(" (")
    return f"{fixed.rstrip(')')} of {curve.batch:,}: {kind}"


def points_as_text(curve: ScalingCurve) -> pd.DataFrame:
    """The measured points as people read them; the first is what the others are compared with."""
    rows = [
        (
            int(point["count"]),
            int(point["runs"]),
            number(point["throughput"]),
            interval(point["throughput_low"], point["throughput_high"], number),
            number(point["per_device"]),
            times(point["speedup"]),
            interval(point["speedup_low"], point["speedup_high"], times),
            percent(point["efficiency"], 0),
            interval(point["efficiency_low"], point["efficiency_high"], lambda share: percent(share, 0)),
            point["called"] or "the baseline",
            point["note"],
        )
        for point in curve.points.to_dict("records")
    ]
    device = "worker" if curve.axis is Thing.WORKERS else "replica"
    return pd.DataFrame(
        rows,
        columns=[
            f"{device.capitalize()}s",
            "Runs",
            "Examples/s",
            _INTERVALS[0],
            f"Per {device}",
            "Speedup",
            _INTERVALS[1],
            "Efficiency",
            _INTERVALS[2],
            "Called",
            "Note",
        ],
    )


def show_points(curve: ScalingCurve) -> None:
    """Draws the table of points with its downloads."""
    st.dataframe(
        points_as_text(curve),
        hide_index=True,
        height="content",
        alt="Points of the curve",
        column_config=dict.fromkeys(_INTERVALS, "95% interval"),
    )
    with st.container(horizontal=True, gap="small"):
        chart.download(lambda: curve.points, f"points-{curve.key}", "scaling_points_csv", "Points (CSV)")
        if len(curve.predictions):
            chart.download(lambda: curve.predictions, f"fit-{curve.key}", "scaling_fit_csv", "Fitted curve (CSV)")
        if curve.fits:
            chart.download(curve.parameters, f"parameters-{curve.key}", "scaling_parameters_csv", "Parameters (CSV)")


def show_fit(curve: ScalingCurve, efficiency: float) -> None:
    """The law in words with its intervals and source, what is refused and why, and the number worth using."""
    with st.container(border=True, gap="xsmall"):
        device = "workers" if curve.axis is Thing.WORKERS else "replicas"
        st.markdown(f"**{curve.fit.law.name if curve.fit else 'No law is drawn'}**")
        for sentence in curve.sentences:
            st.text(sentence[:1].upper() + sentence[1:])
        if curve.worth is not None:
            worth = curve.worth.sentence(efficiency, device)
            st.text(worth[:1].upper() + worth[1:])
        if curve.refusal:
            note.line(Severity.WARNING, f"Nothing is predicted beyond what was measured: {curve.refusal}")
        for each in curve.fits:
            if each is not curve.fit:
                st.caption(f"{each.law.name} was fitted as well{_why_not(each)}.")
        for reason in curve.not_fitted:
            if reason not in curve.refusal:
                st.caption(f"Not fitted: {reason}.")
        if curve.fit:
            st.caption(f"Source: {curve.fit.law.source}. Fitted to {count(curve.fit.runs, 'run')} by least squares.")
    if curve.fits:
        st.dataframe(_parameters(curve), hide_index=True, height="content", alt="Parameters of the fitted laws")


def _why_not(fit: Fit) -> str:
    return f": it does not fit (p = {fit.lack_of_fit:.2g})" if fit.lack_of_fit < 0.01 else ", and says no more"


def _parameters(curve: ScalingCurve) -> pd.DataFrame:
    table = curve.parameters()
    return pd.DataFrame(
        {
            "Law": table["law"],
            "Parameter": table["parameter"],
            "Value": table["value"].map(lambda value: f"{value:.3g}"),
            "95% interval": [
                interval(low, high, lambda value: f"{value:.3g}")
                for low, high in zip(table["low"], table["high"], strict=True)
            ],
            "Drawn": table["preferred"].map({True: "✓", False: ""}),
        }
    )


def show_devices(curve: ScalingCurve, evidence: Evidence) -> None:
    """What each device or worker did in the newest run on the most of them, and which is the slowest."""
    run_id = curve.largest_run
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**Each device of the newest run on {int(curve.points['count'].max())}**")
        tables = device_tables(evidence.history, run_id)
        if not tables:
            st.caption("Neither GPUs nor workers were sampled in that run: nothing is known of each by itself.")
        for slowest, table in tables:
            st.text(slowest)
            st.dataframe(table, hide_index=True, height="content", placeholder="–", alt="Each device")
        st.page_link(
            "app_pages/run.py", label="Open that run", icon=":material/monitoring:", query_params={"run": run_id}
        )


def device_tables(history: pd.DataFrame, run_id: str) -> list[tuple[str, pd.DataFrame]]:
    """For the GPUs and the workers of a run, where they were sampled: the slowest in a sentence, and all as text."""
    found = []
    gpus, processes = scaling.devices(history, run_id), workers.workers(history, run_id)
    if len(gpus):
        shown = pd.DataFrame(
            {
                "Device": gpus["device"],
                "Examples/s": gpus["throughput"].map(number),
                "Busy": gpus["utilisation"].map(lambda value: percent(value / 100, 0)),
                "Peak memory (MB)": gpus["memory_mb"].map(number),
            }
        )
        found.append((_slowest(gpus["device"], gpus["slowest"], "GPU"), shown))
    if len(processes):
        names = processes["worker"].map(lambda index: f"worker {index}")
        shown = pd.DataFrame(
            {
                "Worker": names,
                "Examples/s": processes["throughput"].map(number),
                "Busy": processes["cpu"].map(lambda value: percent(value / 100, 0)),
                "Peak memory (MB)": processes["memory_mb"].map(number),
            }
        )
        found.append((_slowest(names, processes["slowest"], "worker"), shown))
    return found


def _slowest(names: pd.Series, slowest: pd.Series, kind: str) -> str:
    named = ", ".join(names[slowest])
    return f"The slowest is {named}: the others wait for it." if named else f"No {kind} stands out as the slowest."
