"""Starts a ready-made experiment: choose one, see what it can measure here, queue all its runs.

However often Start is pressed, one press starts one set: as in `starter`, the button's identity and the submission
share a token, which is renewed only by a start that went well.
"""

import itertools
import shlex
import typing
import uuid

import streamlit as st

from dashboard import data
from dashboard.components import login, note, started, status
from dashboard.components.spec_form import key
from dashboard.components.spec_values import CHOICE_LABELS
from experiments.plan_runs import MOST_RUNS, Offer
from experiments.plans import MOST_REPEATS, Plan
from experiments.wording import count
from training.spec import SpecError, assigned, spec_fields
from training.spec_rules import LONGEST_NAME, Problem, Severity

_TOKEN = "launch_plan_token"
_STARTED = "launch_plan_started"
_GROUPS = "launch_plan_groups"
_PRESSED = "pressed "


def show() -> None:
    """Draws the whole of it."""
    token = st.session_state.setdefault(_TOKEN, uuid.uuid4().hex)
    left, right = st.columns([2.2, 1], gap="medium")
    with left, st.container(border=True, gap="small"):
        plan = _plan()
        repeats, group = _repeats(plan), _group(plan, token)
        typed, overrides, problems = _overrides()
        for problem in problems:
            note.problem(problem, problem.field)
        offered = data.plan_offer(plan, {} if problems else overrides)
    with left:
        _cases(offered, repeats)
    with right, st.container(key="launch_summary", gap="small"):
        runs = repeats * len(offered.cases)
        with st.container(border=True, gap="xsmall"):
            st.subheader("This experiment", anchor=False)
            st.text(f"{count(runs, 'run')}: {count(len(offered.cases), 'case')} x {count(repeats, 'repeat')}")
            if offered.simulated:
                status.simulated_badge()
            st.caption(
                "Each repeat holds every case once, in random order, so that a machine that drifts favours none."
            )
        group = group or str(overrides.get("group", ""))  # as on the command line
        _start(offered, group, repeats, token, typed, bool(problems) or runs > MOST_RUNS)
        if runs > MOST_RUNS:
            note.line(Severity.ERROR, f"{runs:,} runs are more than {MOST_RUNS:,}: give fewer repeats.")
        st.caption("The same from a terminal")
        st.code(command(plan, repeats, group, typed), language="bash", wrap_lines=True)


def command(plan: Plan, repeats: int, group: str, typed: typing.Sequence[str]) -> str:
    """The shell command that starts the same experiment; every typed text is quoted."""
    parts = ["python -m experiments run --plan", plan.name]
    if repeats != plan.repeats:
        parts.append(f"--repeats {repeats}")
    if group:
        parts.append(f"--group {shlex.quote(group)}")
    return " ".join([*parts, *(f"--set {shlex.quote(text)}" for text in typed)])


def _plan() -> Plan:
    plans = data.plans()
    name = st.selectbox(
        "Experiment", list(plans), key="launch_plan", required=True, bind="query-params", persist_state="session"
    )
    plan = plans[name]
    st.text(plan.title)
    st.text(plan.description)
    return plan


def _repeats(plan: Plan) -> int:
    return st.number_input(
        "Repeats",
        min_value=1,
        max_value=MOST_REPEATS,
        value=plan.repeats,
        step=1,
        key=f"launch_plan_repeats_{plan.name}",
        help="How often each case is run. The spread between runs is known from three on.",
        persist_state="session",
    )


def _group(plan: Plan, token: str) -> str:
    return st.text_input(
        "Group",
        key="launch_plan_group",
        placeholder=_suggested(plan, token),
        max_chars=LONGEST_NAME,
        help="What its runs are called together. Empty: a name with the date and time.",
    ).strip()


def _suggested(plan: Plan, token: str) -> str:
    """The group's name unless a person types one, as it is shown."""
    groups = _groups(token)
    if plan.name not in groups:
        groups[plan.name] = data.new_group(plan)
    return groups[plan.name]


def _chosen(plan: Plan, token: str) -> str:
    """The group's name unless a person types one: the same for every press of one Start button.

    Asked for anew when it is first pressed: somebody else may have been shown the same one in that minute.
    """
    groups = _groups(token)
    if _PRESSED + plan.name not in groups:
        groups[_PRESSED + plan.name] = data.new_group(plan)
    return groups[_PRESSED + plan.name]


def _groups(token: str) -> dict[str, str]:
    groups: dict[str, str] | None = st.session_state.get(_GROUPS)
    if not groups or groups["token"] != token:
        groups = st.session_state[_GROUPS] = {"token": token}
    return groups


def _overrides() -> tuple[list[str], dict[str, typing.Any], list[Problem]]:
    """The lines that a person typed, the fields that they set, and what is wrong with them."""
    with st.expander("More: fields of all runs", type="compact", key="launch_plan_more"):
        text = st.text_area(
            "Fields of all runs",
            key="launch_plan_fields",
            height=90,
            placeholder="epochs=2",
            help="One field=value a line, as after --set. The fields are " + ", ".join(f.name for f in spec_fields()),
            persist_state="session",
        )
        if not login.user():
            st.text_input("User", key=key("user"), placeholder="your name", persist_state="session")
    typed = [line.strip() for line in text.splitlines() if line.strip()]
    user = login.user() or st.session_state.get(key("user"), "")
    try:
        overrides = assigned(typed)
    except SpecError as error:
        return typed, {}, error.problems
    if login.user() or "user" not in overrides:
        overrides["user"] = user
    return typed, overrides, []


def _cases(offered: Offer, repeats: int) -> None:
    if offered.cases:
        rows = [
            {
                "Case": case.label,
                "Device": CHOICE_LABELS[case.spec.device] + (" (simulated)" if case.spec.simulated else ""),
                "Strategy": CHOICE_LABELS[case.spec.strategy],
                "Replicas": case.spec.total_replicas,
                "Batch": case.spec.global_batch_size,
                "Epochs": case.spec.epochs,
                "Runs": repeats,
            }
            for case in offered.cases
        ]
        st.dataframe(rows, hide_index=True, alt="What it runs")
    if offered.simulated:
        note.callout(
            "info",
            "rehearsal",
            "A rehearsal on simulated devices",
            f"They share the hardware of {offered.where}: this shows that the strategy works. The runs are marked, and "
            "figures leave them out.",
        )
    if offered.not_measured:
        st.caption(f"Cannot be measured on {offered.where}")
        for reason, cases in itertools.groupby(offered.not_measured, key=lambda missing: missing.reason):
            note.line(Severity.WARNING, f"{', '.join(missing.label for missing in cases)}: {reason}")


def _start(offered: Offer, group: str, repeats: int, token: str, typed: typing.Sequence[str], is_refused: bool) -> None:
    what = [offered.plan.name, repeats, st.session_state["launch_plan_group"], *typed]
    last = st.session_state.get(_STARTED)
    if last and last["what"] == what:
        _show_started(last["group"], last["runs"])
        return
    if is_refused or not offered.cases:
        st.button("Start all", key="launch_plan_refused", type="primary", disabled=True, width="stretch")
        return
    if not st.button(
        "Start all", key=f"launch_plan_{token}", type="primary", icon=":material/play_arrow:", width="stretch"
    ):
        return
    with st.spinner("Queueing the runs …"):
        group = group or _chosen(offered.plan, token)
        run_ids, problems = data.submit_plan(offered, group, repeats, token)
    for problem in problems:
        note.problem(problem, problem.field)
    if problems and run_ids:
        told = f"{count(len(run_ids), 'run')} of {repeats * len(offered.cases):,} queued: Start all queues the rest."
        note.line(Severity.WARNING, told)
    elif run_ids:
        st.session_state[_STARTED] = {"what": what, "group": group, "runs": len(run_ids)}
        st.session_state[_TOKEN] = uuid.uuid4().hex
        st.rerun()


def _show_started(group: str, runs: int) -> None:
    link = ("app_pages/runs.py", "Watch the runs", ":material/list:")
    again = f"launch_plan_again_{st.session_state[_TOKEN]}"
    started.panel(f"{count(runs, 'run')} queued", group, link, {"runs_group": group}, again, _forget)


def _forget() -> None:
    st.session_state.pop(_STARTED, None)
