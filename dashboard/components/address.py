"""Choices that are part of the page's address, so that a link shows a colleague the same view.

The address is the only place where such a choice is kept: a widget shows what the address says, and a change of the
widget writes it there.
"""

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence

import streamlit as st

_LONGEST = 4_000


def read(name: str) -> str:
    """What the address says; empty when nothing."""
    return str(st.query_params.get(name, ""))[:_LONGEST]


def write(values: Mapping[str, str]) -> None:
    """Sets parts of the address; an empty text takes one out."""
    for name, value in values.items():
        if value:
            st.query_params[name] = value
        elif name in st.query_params:
            del st.query_params[name]


def read_list(name: str) -> list[str]:
    """What the address lists, separated by commas."""
    return [part for part in read(name).split(",") if part]


def _take(name: str, key: str, drops: Iterable[str]) -> None:
    value = st.session_state[key]
    write({name: "" if value is None else str(value), **dict.fromkeys(drops, "")})


def select(
    label: str,
    options: Sequence[str],
    name: str,
    key: str,
    shown: Mapping[str, str] | None = None,
    *,
    optional: str = "",
    drops: Iterable[str] = (),
    help: str | None = None,
    width: int | typing.Literal["stretch"] = "stretch",
) -> str:
    """A select box whose choice stands in the address.

    Args:
        label: our own words.
        options: what the address may say.
        name: the part of the address.
        key: the widget's.
        shown: option -> what to show, as typed; the option itself where it lacks.
        optional: a placeholder; then nothing may be chosen, too.
        drops: other parts of the address that mean nothing after a change.
        help: a hint.
        width: in pixels, or `stretch`.

    Returns:
        The choice; the first option when the address says nothing that is allowed, or empty when it is optional.
    """
    asked = read(name)
    chosen = asked if asked in options else None if optional else options[0]
    labels = unique({option: (shown or {}).get(option, option) for option in options})
    st.session_state[key] = chosen
    # Without a default the reader can clear the box.
    place: typing.Any = None if optional else 0
    found = st.selectbox(
        label,
        options,
        index=place,
        format_func=labels.__getitem__,
        key=key,
        placeholder=optional or None,
        on_change=_take,
        args=(name, key, tuple(drops)),
        help=help,
        width=width,
    )
    return found or ""


def unique(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels with a number behind those that were there before: a select box tells its options apart by them."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for option, label in labels.items():
        shown, number = label, 2
        while shown in taken:
            shown, number = f"{label} ({number})", number + 1
        taken.add(shown)
        found[option] = shown
    return found


def toggle(label: str, name: str, key: str, help: str | None = None) -> bool:
    """A toggle whose state stands in the address (`1` for on)."""
    st.session_state[key] = read(name) == "1"

    def take() -> None:
        write({name: "1" if st.session_state[key] else ""})

    return st.toggle(label, key=key, on_change=take, help=help)


def percent_slider(label: str, name: str, key: str, lowest: int, highest: int, default: int, step: int = 5) -> int:
    """A slider over percents whose value stands in the address."""
    asked = read(name)
    whole = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) <= 3 else default
    st.session_state[key] = whole if lowest <= whole <= highest else default

    def take() -> None:
        write({name: str(st.session_state[key])})

    return st.slider(label, lowest, highest, step=step, format="%d%%", key=key, on_change=take)


def search(label: str, name: str, key: str, placeholder: str) -> str:
    """A search box whose text stands in the address."""
    st.session_state[key] = read(name)
    found = st.text_input(
        label, key=key, placeholder=placeholder, icon=":material/search:", on_change=_take, args=(name, key, ())
    )
    return found or ""


def checkbox(label: str, key: str, value: bool, change: Callable[[bool], None]) -> bool:
    """A check box that shows what the address says; `change` writes what was ticked there."""
    st.session_state[key] = value
    return st.checkbox(label, key=key, on_change=lambda: change(bool(st.session_state[key])))
