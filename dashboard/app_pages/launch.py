"""Launch: describe a run, see what it amounts to, start it; or start all runs of a ready-made experiment.

`?spec=RUN` fills the form with that run's spec.
"""

import streamlit as st

from dashboard import data
from dashboard.components import note, plan_picker, spec_form, spec_values, starter, summary
from training.spec import RunSpec, SpecError
from training.spec_rules import Problem, Severity

_FROM = "launch_from"
"""Id of the run whose spec the form began with."""
ONE, READY_MADE = "One run", note.READY_MADE["launch_what"]


def _fill_from_run() -> None:
    """Takes `?spec=RUN` out of the address (once applied it must not undo what the person changes) and applies it."""
    run_id = st.query_params.get("spec")
    if not run_id:
        return
    del st.query_params["spec"]
    try:
        spec = data.spec(run_id)
    except (data.UnknownRun, SpecError) as error:
        note.callout("warning", "launch_spec", "That run's spec cannot be used again", str(error))
        return
    spec_form.fill(spec_values.to_start_again(spec))
    st.session_state[_FROM] = run_id
    st.toast("The form holds that run's spec.", icon=":material/content_copy:")


def _problems(form: spec_form.Form, spec: RunSpec) -> list[Problem]:
    found = data.check(spec)
    return [form.unreadable, *found] if form.unreadable else found


def _page() -> None:
    st.title("Launch a run", anchor=False)
    _fill_from_run()
    chosen = st.segmented_control(
        "What to start",
        (ONE, READY_MADE),
        default=ONE,
        required=True,
        key="launch_what",
        label_visibility="collapsed",
        bind="query-params",
    )
    if chosen == READY_MADE:
        plan_picker.show()
    else:
        _one_run()


def _one_run() -> None:
    machines = None
    with note.guarded("machines"):
        # Without their answer a run can still be queued: it waits until they do.
        machines = data.machines()
    form = spec_form.Form(data.datasets(), data.default_dataset(), machines)
    left, right = st.columns([2.2, 1], gap="medium")
    with left:
        form.show()
    spec = RunSpec(**form.values)
    problems = _problems(form, spec)
    refusals = [problem for problem in problems if problem.severity is Severity.ERROR]
    with right, st.container(key="launch_summary", gap="small"):
        found = None if refusals else spec_values.derived(spec)
        with st.container(border=True, gap="xsmall"):
            st.subheader("This run", anchor=False)
            if found is None:
                st.markdown(f"**{len(refusals)}** to mend before it can start:")
                for problem in refusals:
                    note.problem(problem, form.labels.get(problem.field, problem.field), spec_values.in_form_words)
            else:
                summary.show(spec, found, machines)
        late = starter.show(spec, len(refusals), _FROM)
        summary.show_command(spec)
    with right:
        # Refusals stand in the summary already; a warning about no field of the form would be lost.
        for problem in form.tell([*problems, *late]):
            if problem not in refusals:
                note.problem(problem, problem.field, spec_values.in_form_words)


with note.guarded("launch"):
    _page()
