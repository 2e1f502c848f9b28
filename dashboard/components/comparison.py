"""What the Speedup page compares: a baseline, and all that match it or one run of the reader's choice."""

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from dashboard import analyses
from dashboard.components import address, note, speedup_table
from experiments.analysis import pairs
from experiments.analysis.comparable import BatchRule, Thing, cells
from experiments.analysis.field_words import in_words
from experiments.wording import count
from training.names import RunStatus

_FIELDS_SHOWN = 4
_ALL = "all that match"
_NAMED = ("The baseline", "The other run")


@dataclass(frozen=True)
class Chosen:
    """What is compared.

    Attributes:
        baseline: a run of the baseline's configuration.
        thing, rule: what the comparison is about; None where nothing compares with the baseline.
        pair: the baseline and the one run that it is compared with; None for all that match.
        remark: why the other run that the address names is not shown; empty where it is.
    """

    baseline: str
    thing: Thing | None
    rule: BatchRule
    pair: pairs.Pair | None
    remark: str

    @property
    def drawn(self) -> bool:
        """Whether there is something to draw."""
        return self.thing is not None and (self.pair is None or self.pair.check.possible)


def choose(runs: pd.DataFrame) -> Chosen | None:
    """Draws the choices. None where there are no two configurations.

    Args:
        runs: rows of RUN_COLUMNS that have ended, newest first.
    """
    baseline, other, remark = _named(runs)
    both = pairs.pair(runs, baseline, other) if baseline and other else None
    if both is not None and both.check.possible:
        address.write({"thing": str(both.thing), "rule": str(both.rule)})
    found = analyses.suggestions(runs)
    chosen = _choose_set(found, baseline) if len(found) else None
    if chosen is not None:
        baseline = _choose_baseline(runs, chosen)
    elif not baseline:
        finished = _finished(runs)
        if cells(finished).nunique() < 2:
            return None
        baseline = str(finished["run_id"].iloc[0])
        address.write({"baseline": baseline})
    other = _choose_other(runs, baseline, other)
    pair = pairs.pair(runs, baseline, other) if other else None
    if pair is not None and pair.check.possible:
        return Chosen(baseline, pair.thing, pair.rule, pair, remark)
    if chosen is None:
        return Chosen(baseline, None, BatchRule.FIXED_GLOBAL, pair, remark)
    return Chosen(baseline, Thing(chosen["thing"]), BatchRule(chosen["rule"]), pair, remark)


def _named(runs: pd.DataFrame) -> tuple[str, str, str]:
    """The baseline and the other run that the address names, and a remark where one of them cannot be shown.

    `?other=RUN` alone asks for the run's natural baseline.
    """
    known = set(runs["run_id"])
    asked = address.read("baseline"), address.read("other")
    baseline, other = (run_id if run_id in known else "" for run_id in asked)
    gone = [what for what, name, run_id in zip(_NAMED, asked, (baseline, other), strict=True) if name and not run_id]
    if gone:
        return baseline, "", f"{' and '.join(gone)} in the address has not ended, or is not among these"
    if other and not baseline:
        baseline, other = pairs.natural(_finished(runs, other), other)
        address.write({"baseline": baseline, "other": other, "thing": "", "rule": ""})
    elif other and other in pairs.repeats(runs, baseline, baseline):
        return baseline, "", f"The two runs do not compare: {pairs.SAME}"
    return baseline, other, ""


def _finished(runs: pd.DataFrame, *named: str) -> pd.DataFrame:
    """The runs that are offered: those that have finished, and those that the address names."""
    return runs[(runs["status"] == RunStatus.FINISHED) | runs["run_id"].isin(named)]


def _choose_set(found: pd.DataFrame, baseline: str) -> dict | None:
    """The set of runs that is compared: the one that the address names, else the one with the newest run.

    None where the baseline belongs to no set: an unrelated one would be taken for its comparison.
    """
    rows = {f"{row['thing']}|{row['rule']}|{row['run_ids'][0]}": row for row in found.to_dict("records")}
    thing, rule = address.read("thing"), address.read("rule")
    fitting = [key for key, row in rows.items() if baseline in ("", *row["run_ids"])]
    asked = [key for key in fitting if thing in ("", rows[key]["thing"]) and rule in ("", rows[key]["rule"])]
    st.session_state["speedup_set"] = next(iter(asked or fitting), None)
    labels = address.unique({key: speedup_table.set_label(row) for key, row in rows.items()})

    def take() -> None:
        row = rows[st.session_state["speedup_set"]]
        address.write(
            {"thing": row["thing"], "rule": row["rule"], "baseline": row["baseline"], "back": "", "other": ""}
        )

    chosen = st.selectbox(
        "Compare",
        list(rows),
        index=None if not fitting else 0,
        format_func=labels.__getitem__,
        key="speedup_set",
        placeholder="another comparison",
        on_change=take,
    )
    return rows[chosen] if chosen else None


def _choose_baseline(runs: pd.DataFrame, chosen: dict) -> str:
    """One run of the configuration that is the baseline."""
    options, named = speedup_table.baselines(runs, chosen, address.read("baseline"))
    if named and named != address.read("baseline"):
        address.write({"baseline": named})
    found = address.select("Baseline", list(options), "baseline", "speedup_baseline", options, width=300)
    address.write({"thing": chosen["thing"], "rule": chosen["rule"], "baseline": found})
    return found


def _choose_other(runs: pd.DataFrame, baseline: str, asked: str) -> str:
    """One run of another configuration, whether it compares or not; empty for all that match."""
    beside = analyses.others(_finished(runs, baseline, asked), baseline)
    names = runs.set_index("run_id")["name"]
    options = {(asked if asked in row["run_ids"] else row["run_ids"][0]): row for row in beside.to_dict("records")}
    labels = {run_id: f"{names[run_id] or run_id[:8]} – {_said(row)}" for run_id, row in options.items()}
    return address.select(
        "Compare with", list(options), "other", "speedup_other", labels, optional=_ALL, drops=("back",), width=300
    )


def _said(row: dict) -> str:
    """What an option is beside the baseline, the fields that differ first."""
    words = [in_words(name, value) for name, value in row["differs"].items()]
    more = f" and {len(words) - _FIELDS_SHOWN} more" if len(words) > _FIELDS_SHOWN else ""
    mark = f"; does not compare: {count(row['in_the_way'], 'field')} in the way" if row["in_the_way"] else ""
    return f"{', '.join(words[:_FIELDS_SHOWN])}{more}{mark} ({count(len(row['run_ids']), 'run')})"


def show(runs: pd.DataFrame, chosen: Chosen) -> None:
    """Says what the two runs differ in, or which field is in the way, or which runs come nearest."""
    if chosen.remark:
        note.callout("warning", "other", chosen.remark)
    if chosen.pair is not None:
        _show_pair(chosen.pair)
    elif chosen.thing is None:
        _show_nearest(runs, chosen.baseline)


def _show_pair(pair: pairs.Pair) -> None:
    if pair.check.possible:
        st.caption("These two configurations differ in")
        st.text(" · ".join(pair.check.differs))
    else:
        lines = [pair.check.sentence(), *pair.check.notes]
        note.callout("warning", "pair", "These two runs do not compare", "\n".join(lines))


def _show_nearest(runs: pd.DataFrame, baseline: str) -> None:
    """What stands in place of a comparison where nothing matches the baseline."""
    names = runs.set_index("run_id")["name"]
    lines = [
        f"{names[each.candidate] or each.candidate[:8]}: {each.check.sentence()}"
        for each in pairs.nearest(_finished(runs, baseline), baseline)
    ]
    title = "No run compares with this one" + (". The nearest are" if lines else "")
    note.callout("warning", "alone", title, "\n".join([f"Baseline: {names[baseline] or baseline[:8]}", *lines]))
    st.page_link(
        "app_pages/launch.py",
        label="Launch it with one thing changed",
        icon=":material/arrow_forward:",
        query_params={"spec": baseline},
    )
