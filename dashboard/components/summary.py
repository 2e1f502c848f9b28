"""What a spec amounts to, beside the form: derived sizes, what it asks of the machines, the command to copy."""

import streamlit as st

from dashboard import data
from dashboard.components import status
from dashboard.components.spec_values import Derived, command
from experiments.capacity import Capacity, Request
from experiments.wording import count
from training.spec import RunSpec


def show(spec: RunSpec, found: Derived, machines: Capacity | None) -> None:
    """Draws the sizes. `machines` is None while they do not answer."""
    st.text(spec.display_name)
    if spec.simulated:
        status.simulated_badge(spec.logical_devices)
    rows = [
        ("Replicas in sync", f"{found.total_replicas:,}"),
        ("Batch per replica", count(found.per_replica_batch_size, "example")),
        ("Steps per epoch", f"{found.steps_per_epoch:,}"),
        ("Steps in all", f"{found.total_steps:,}"),
        ("Left out per epoch", _left_out(found)),
        ("Validated on", count(found.validation_examples, "example")),
    ]
    if machines is not None:
        rows.append(("Asks for", _asks(data.asked(spec), machines)))
    # Numbers and our own words only: a table reads Markdown.
    st.table(dict(rows), border="horizontal", alt="What this run amounts to")


def show_command(spec: RunSpec) -> None:
    """The command that starts the same run."""
    st.caption("The same from a terminal")
    st.code(command(spec), language="bash", wrap_lines=True)


def _left_out(found: Derived) -> str:
    if not found.examples_left_out:
        return "nothing"
    return f"{found.examples_left_out:,} of {found.training_examples:,}"


def _asks(request: Request, machines: Capacity) -> str:
    cpus = f"{request.cpus_total:,} of {count(machines.cpus, 'CPU')}"
    return f"{cpus}, {request.gpus_total:,} of {count(machines.gpus, 'GPU')}" if request.gpus_total else cpus
