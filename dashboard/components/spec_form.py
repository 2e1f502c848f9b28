"""The form of a run, made from RunSpec's field metadata: a new field of the spec appears here by itself.

Widgets answer at once (no `st.form`), because what one says decides what the next may offer. Their values live in the
session under `launch_<field>`, so that they survive a visit to another page.
"""

import dataclasses
import typing
from collections.abc import Mapping

import streamlit as st

from dashboard.components import login, note
from dashboard.components.spec_values import (
    CHOICE_LABELS,
    format_tags,
    in_form_words,
    is_common,
    is_shown,
    kind,
    parse_tags,
    placement_devices,
    settled_logical_devices,
)
from experiments.capacity import Capacity
from training import catalog
from training.datasets.availability import Availability
from training.spec import Part, RunSpec, spec_fields
from training.spec_rules import Problem

PREFIX = "launch_"
_OPTION = PREFIX + "option_"
_LAYER = PREFIX + "layer_"
_COLUMNS = 3
_AUTOMATIC = "automatic"
_TITLES = {
    Part.WHAT: "What",
    Part.WHERE: "Where",
    Part.HOW_LONG: "How long",
    Part.HOW: "How",
    Part.WHO: "Who",
}
_WIDE = ("dataset_options", "manual_placement", "tags", "notes")
_NARROW_CHOICES = 20  # characters of all choices together that fit one column


def key(name: str) -> str:
    """The session's key of a field."""
    return PREFIX + name


def fill(values: Mapping[str, typing.Any]) -> None:
    """Puts fields of a spec into the form, which keeps what it has in the others; call before `show`."""
    for stale in [name for name in st.session_state if str(name).startswith((_OPTION, _LAYER))]:
        del st.session_state[stale]
    for field in (each for each in spec_fields() if each.name in values):
        value = values[field.name]
        if field.name == "tags":
            st.session_state[key("tags")] = format_tags(value)
        elif field.name == "dataset_options":
            for option, chosen in value.items():
                st.session_state[f"{_OPTION}{values['dataset']}_{option}"] = chosen
        elif field.name == "manual_placement":
            for layer, device in value.items():
                st.session_state[f"{_LAYER}{values['workload']}_{layer}"] = device
        elif field.name == "gpus":
            st.session_state[key("gpus")] = list(value or ())
        else:
            st.session_state[key(field.name)] = value


class Form:
    """One drawing of the form: `show` draws it, `values` are then the fields, `tell` puts problems beside them."""

    def __init__(self, here: Mapping[str, Availability], default_dataset: str, machines: Capacity | None):
        """`machines` is None while they do not answer: then a GPU is offered too, and the queue will tell."""
        self._here = here
        self._gpus_there = 1 if machines is None else machines.gpus
        self._gpu_ids = () if machines is None else machines.gpu_ids
        self._slots: dict[str, typing.Any] = {}
        self.values: dict[str, typing.Any] = {}
        self.labels: dict[str, str] = {}
        for field in spec_fields():
            default = default_dataset if field.name == "dataset" else getattr(RunSpec(), field.name)
            if field.name == "tags":
                default = ""
            elif field.name == "gpus":
                default = []
            elif field.name in ("dataset_options", "manual_placement"):
                continue
            # A widget keeps its state only while it is drawn; asking for it here keeps that of hidden ones too.
            st.session_state.setdefault(key(field.name), default)

    def show(self) -> None:
        """Draws the form."""
        for part in Part:
            fields = [field for field in spec_fields() if field.metadata["part"] is part]
            with st.container(border=True, gap="small"):
                st.subheader(_TITLES[part], anchor=False)
                shown = [field for field in fields if self._is_shown(field.name)]
                common = [field for field in shown if is_common(field.name, self._choices)]
                self._grid(common)
                if part is Part.WHERE:
                    self._where_notes()
                rest = [field for field in shown if field not in common]
                if rest:
                    labels = ", ".join(field.metadata["label"] for field in rest[:3])
                    more = f"More: {labels} …" if len(rest) > 3 else f"More: {labels}"
                    with st.expander(more, type="compact", key=f"{PREFIX}more_{part.name.lower()}"):
                        self._grid(rest)
        for field in spec_fields():
            self.values.setdefault(field.name, getattr(RunSpec(), field.name))
        if login.user():
            self.values["user"] = login.user()

    def tell(self, problems: list[Problem]) -> list[Problem]:
        """Puts each problem beside its field. Returns those whose field is not on the form."""
        elsewhere = []
        for problem in problems:
            slot = self._slots.get(problem.field)
            if slot is None:
                elsewhere.append(problem)
                continue
            with slot:
                note.problem(problem, words=in_form_words)
        return elsewhere

    # --- drawing ---

    def _is_shown(self, name: str) -> bool:
        if name == "user" and login.user():
            return False
        return is_shown(name, self._choices, self._gpus_there, self._gpu_ids)

    @property
    def _choices(self) -> dict[str, typing.Any]:
        """What decides over other fields."""
        return {name: self._state(name) for name in ("device", "strategy", "gpus")}

    def _state(self, name: str) -> typing.Any:
        return st.session_state[key(name)]

    def _grid(self, fields: list[dataclasses.Field]) -> None:
        """Rows of three columns; a field takes as many as it needs."""
        row: list[tuple[dataclasses.Field, int]] = []
        for field in fields:
            span = _span(field)
            if sum(taken for _, taken in row) + span > _COLUMNS:
                self._row(row)
                row = []
            row.append((field, span))
        self._row(row)

    def _row(self, row: list[tuple[dataclasses.Field, int]]) -> None:
        free = _COLUMNS - sum(taken for _, taken in row)
        # Empty columns keep a short row's fields as wide as those above them.
        columns = st.columns([taken for _, taken in row] + [1] * free)
        for column, (field, _) in zip(columns, row, strict=False):
            with column:
                self._field(field)

    def _field(self, field: dataclasses.Field) -> None:
        self.labels[field.name] = field.metadata["label"]
        self.values[field.name] = self._widget(field)
        self._slots[field.name] = st.container(gap="xxsmall")

    def _widget(self, field: dataclasses.Field) -> typing.Any:
        """The widget that fits the field's type. Returns the field's value."""
        name, label, help_text = field.name, field.metadata["label"], field.metadata["help"]
        special = {
            "workload": self._workload,
            "dataset": self._dataset,
            "dataset_options": self._dataset_options,
            "gpus": self._gpus,
            "tags": self._tags,
            "manual_placement": self._manual_placement,
        }.get(name)
        if special:
            return special(label, help_text)
        shared: dict[str, typing.Any] = {"key": key(name), "help": help_text, "persist_state": "session"}
        plain, optional = kind(field)
        choices = field.metadata.get("choices")
        if choices:
            return st.segmented_control(
                label, choices, format_func=_label, required=True, on_change=_settle, width="stretch", **shared
            )
        if plain is bool:
            st.space("small")  # a switch has its label beside it: this puts it on the line of its neighbours
            return st.toggle(label, **shared)
        if plain is int:
            return st.number_input(
                label,
                min_value=field.metadata.get("minimum"),
                max_value=field.metadata.get("maximum"),
                step=1,
                placeholder=_empty_means(help_text) if optional else None,
                on_change=_settle if name == "replicas" else "rerun",
                **shared,
            )
        if plain is float:
            return st.number_input(label, step=0.0001, format="%g", **shared)
        if name == "notes":
            return st.text_area(label, height=90, **shared)
        placeholder = "your name" if name == "user" else _empty_means(help_text)
        return st.text_input(label, placeholder=placeholder, **shared)

    def _workload(self, label: str, help_text: str) -> str:
        return st.selectbox(
            label,
            list(catalog.WORKLOADS),
            format_func=lambda name: catalog.WORKLOADS[name].title,
            key=key("workload"),
            help=help_text,
            persist_state="session",
        )

    def _dataset(self, label: str, help_text: str) -> str:
        input_kind = catalog.WORKLOADS[self._state("workload")].input_kind
        names = [name for name, found in catalog.DATASETS.items() if found.input_kind == input_kind]

        def shown(name: str) -> str:
            found = self._here[name]
            where = "on this machine" if found.here else "will be downloaded" if found.downloadable else "not here"
            return f"{catalog.DATASETS[name].title} · {where}"

        chosen = st.selectbox(
            label, names, format_func=shown, key=key("dataset"), help=help_text, persist_state="session"
        )
        if not self._here[chosen].here:
            st.text(self._here[chosen].how_to_get)
        return chosen

    def _dataset_options(self, label: str, help_text: str) -> dict[str, typing.Any]:
        """One widget an option of the chosen data set. Returns only those that differ from their default."""
        dataset = self._state("dataset")
        chosen: dict[str, typing.Any] = {}
        options = list(catalog.DATASETS[dataset].options.items())
        for start in range(0, len(options), _COLUMNS):
            for column, (name, option) in zip(st.columns(_COLUMNS), options[start : start + _COLUMNS], strict=False):
                state = f"{_OPTION}{dataset}_{name}"
                st.session_state.setdefault(state, option.default)
                shared: dict[str, typing.Any] = {"key": state, "help": option.help, "persist_state": "session"}
                title = name.replace("_", " ").capitalize()
                with column:
                    if option.choices:
                        value = st.selectbox(title, option.choices, format_func=_label, **shared)
                    elif isinstance(option.default, str):
                        value = st.text_input(title, **shared)
                    else:
                        number = type(option.default)
                        value = st.number_input(
                            title,
                            min_value=None if option.minimum is None else number(option.minimum),
                            max_value=None if option.maximum is None else number(option.maximum),
                            step=number(1),
                            **shared,
                        )
                if value != option.default:
                    chosen[name] = value
        return chosen

    def _gpus(self, label: str, help_text: str) -> tuple[int, ...] | None:
        chosen = st.multiselect(
            label,
            sorted({*self._gpu_ids, *self._state("gpus")}),
            format_func=lambda index: f"GPU {index}",
            key=key("gpus"),
            help=help_text,
            placeholder="any that are free",
            persist_state="session",
        )
        return tuple(sorted(chosen)) or None

    def _tags(self, label: str, help_text: str) -> dict[str, str]:
        typed = st.text_area(
            label,
            height=90,
            key=key("tags"),
            help=help_text,
            placeholder="key=value, one a line",
            persist_state="session",
        )
        tags, refusal = parse_tags(typed)
        if refusal:
            self.unreadable = Problem("tags", typed, "cannot be read", refusal)
        return tags

    unreadable: Problem | None = None
    """What the form itself could not read, if anything: it refuses the start like any other problem."""

    def _manual_placement(self, label: str, help_text: str) -> dict[str, str]:
        """A select box a layer of the chosen workload."""
        workload = self._state("workload")
        layers = catalog.WORKLOADS[workload].layers
        devices = placement_devices(self._state("device"), 1, self._state("logical_devices"))
        st.markdown(label, help=help_text)
        placement: dict[str, str] = {}
        per_row = 4
        for start in range(0, len(layers), per_row):
            for column, layer in zip(st.columns(per_row), layers[start : start + per_row], strict=False):
                state = f"{_LAYER}{workload}_{layer}"
                st.session_state.setdefault(state, _AUTOMATIC)
                # A device that this run no longer has stays on offer, so that its refusal is seen, not its loss.
                offered = list(dict.fromkeys([_AUTOMATIC, *devices, st.session_state[state]]))
                device = column.selectbox(layer, offered, key=state, persist_state="session")
                if device != _AUTOMATIC:
                    placement[layer] = device
        return placement

    def _where_notes(self) -> None:
        if not self._gpus_there and self._state("device") == "cpu":
            st.caption("Runs here use the CPU: no GPU was found. The Environment page says why.")


def _span(field: dataclasses.Field) -> int:
    """Columns a field needs."""
    if field.name in _WIDE:
        return _COLUMNS
    return 2 if sum(map(len, field.metadata.get("choices", ()))) > _NARROW_CHOICES else 1


def _label(choice: str) -> str:
    return CHOICE_LABELS.get(choice, choice)


def _empty_means(help_text: str) -> str | None:
    """What an empty field means, from a help such as `Of one plan; empty: a new one.`"""
    _, colon, meaning = help_text.partition("mpty: ")
    return meaning.rstrip(".") if colon else None


def _settle() -> None:
    """After a choice of device, strategy or replicas: the simulated devices that it needs, and a sensible size."""
    strategy = st.session_state[key("strategy")]
    if strategy == "mirrored" and st.session_state[key("replicas")] == 1:
        st.session_state[key("replicas")] = 2
    if strategy == "multi_worker_mirrored" and st.session_state[key("workers")] == 1:
        st.session_state[key("workers")] = 2
        st.session_state[key("replicas")] = 1
    st.session_state[key("logical_devices")] = settled_logical_devices(
        st.session_state[key("device")], strategy, st.session_state[key("replicas")]
    )
