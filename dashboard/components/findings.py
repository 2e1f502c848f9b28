"""What the doctor found, what the machine has, and the data sets: every problem with its remedy."""

import typing
from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from experiments.capacity import Capacity
from experiments.wording import count
from training import catalog
from training.datasets.availability import Availability

if typing.TYPE_CHECKING:
    from experiments.doctor import Finding

_DATASETS = "Data sets"  # the doctor's area
_LEVELS = {
    "problem": ("Problem", ":red[:material/error:]"),
    "warning": ("Warning", ":orange[:material/warning:]"),
    "ok": ("Fine", ":green[:material/check_circle:]"),
}


def by_area(found: Sequence["Finding"]) -> dict[str, list["Finding"]]:
    """Findings by area; areas with the worst finding first, and the worst first in each."""
    rank = {level: place for place, level in enumerate(_LEVELS)}
    areas: dict[str, list[Finding]] = {}
    for finding in sorted(found, key=lambda one: rank[str(one.level)]):
        areas.setdefault(finding.area, []).append(finding)
    return areas


def headline(found: Sequence["Finding"]) -> str:
    """The finding in a sentence."""
    problems = sum(str(one.level) == "problem" for one in found)
    warnings = sum(str(one.level) == "warning" for one in found)
    if problems:
        more = f", and {count(warnings, 'warning')}" if warnings else ""
        return f"{count(problems, 'problem')} to mend{more}"
    return f"No problem, {count(warnings, 'warning')}" if warnings else "Nothing is wrong here"


def show(found: Sequence["Finding"]) -> None:
    """Draws the findings, grouped; what is to be mended over the full width, the rest side by side."""
    st.subheader(headline(found), anchor=False)
    # The data sets that are here stand in a table of their own.
    listed = [one for one in found if one.area != _DATASETS or _is_to_mend(one)]
    areas = by_area(listed)
    calm = [area for area, members in areas.items() if not any(map(_is_to_mend, members))]
    for area, members in areas.items():
        if area not in calm:
            _show_area(area, members)
    columns = st.columns(2)
    for place, area in enumerate(calm):
        with columns[place % 2]:
            _show_area(area, areas[area])


def _is_to_mend(finding: "Finding") -> bool:
    return str(finding.level) != "ok"


def _show_area(area: str, members: Sequence["Finding"]) -> None:
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{area}**")
        for place, finding in enumerate(members):
            _show_one(finding, f"finding_detail_{area}_{place}")


def _show_one(finding: "Finding", key: str) -> None:
    word, icon = _LEVELS[str(finding.level)]
    with st.container(horizontal=True, gap="small", wrap=False):
        st.markdown(icon, width="content")
        with st.container(gap=None):
            st.text(f"{word}: {finding.title}" if _is_to_mend(finding) else _sentence(finding.title))
            if finding.remedy:
                st.text(f"To mend it: {finding.remedy}")
            if finding.detail:
                with st.container(key=key):
                    st.text(finding.detail)


def _sentence(title: str) -> str:
    return title[:1].upper() + title[1:]


def show_capacity(machines: Capacity) -> None:
    """Draws what runs can have."""
    with st.container(horizontal=True, gap="large"):
        st.metric("Processor cores", f"{machines.cpus:,}", width="content")
        st.metric("GPUs", f"{machines.gpus:,}", width="content")
        st.metric("Machines", f"{len(machines.nodes):,}", width="content")
        st.metric("Runs go to", "the Ray cluster" if machines.source == "ray" else machines.source, width="content")


def dataset_table(here: Mapping[str, Availability]) -> pd.DataFrame:
    """One row a data set: title, whether it is here, its size, where it is or how to get it."""
    rows = []
    for name, found in here.items():
        known = catalog.DATASETS[name]
        state = "✓ here" if found.here else "↓ downloaded at first use" if found.downloadable else "✕ missing"
        rows.append(
            (
                known.title,
                name,
                state,
                known.examples,
                known.validation_examples,
                "x".join(map(str, known.shape)),
                str(found.source) if found.here else found.how_to_get,
            )
        )
    columns = ["title", "name", "state", "examples", "validation_examples", "shape", "where"]
    return pd.DataFrame(rows, columns=columns)


def show_datasets(here: Mapping[str, Availability]) -> None:
    """Draws the data sets."""
    table = dataset_table(here)
    present = int(table["state"].str.startswith("✓").sum())
    st.subheader(f"{present} of {count(len(table), 'data set')} on this machine", anchor=False)
    column = st.column_config
    st.dataframe(
        table,
        hide_index=True,
        alt="Data sets",
        height="content",
        column_config={
            "title": column.TextColumn("Data set", width=190),
            "name": column.TextColumn("Name", width=110),
            "state": column.TextColumn("State", width=170),
            "examples": column.NumberColumn("Training", format="localized", width=80),
            "validation_examples": column.NumberColumn("Validation", format="localized", width=80),
            "shape": column.TextColumn("Shape", width=80),
            "where": column.TextColumn("Where it is, or how to get it", width="large"),
        },
    )
