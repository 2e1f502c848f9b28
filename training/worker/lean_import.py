"""TensorFlow's import without what no training run uses of it."""

import contextlib
import gc
import importlib.abc
import sys
import threading
import types
import typing
from collections.abc import Iterator, Sequence

_UNUSED = ("sklearn", "matplotlib")
"""Keras imports them where they are installed, for its scikit-learn wrappers and image galleries: a third of the time
that TensorFlow's import takes, in every training process."""


class _Refused(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> typing.Any:
        # Another thread may be reading a data set meanwhile, with whatever library it likes.
        if fullname in _UNUSED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is not imported for Keras", name=fullname)


@contextlib.contextmanager
def lean_import() -> Iterator[None]:
    """While it is open, this thread finds neither scikit-learn nor matplotlib, both optional for Keras.

    Whoever imports them later, a workload for one, gets them. Only `keras.wrappers` and the galleries of
    `keras.visualization` then do without.

    Nor does any thread look for garbage meanwhile: 3,300 modules make little of it and stay, and looking through them
    again and again is a seventh of the import's time. What is there at the end, also of other threads, is left out of
    later searches too.
    """
    refused = _Refused()
    collected = gc.isenabled()
    sys.meta_path.insert(0, refused)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(refused)
        gc.freeze()
        if collected:
            gc.enable()
