"""Reads a run's artifacts. Paths come from `names.Artifact` only, never from a person."""

import tempfile
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.settings import Settings

if typing.TYPE_CHECKING:
    from mlflow.entities import Run


@contextmanager
def artifact(settings: Settings, run: "Run", path: str) -> Iterator[Path | None]:
    """One artifact as a local file, for as long as the block lasts.

    Args:
        settings: where runs are recorded.
        run: the run.
        path: a path of `names.Artifact`.

    Yields:
        The file (in place when the store is on this machine, else a copy that is removed after), or None when the run
        has no such artifact or it is a link that leads out of the run's own artifacts.
    """
    root = _local_root(run)
    if root is not None:
        yield _inside(root, path)
        return
    client = settings.client()
    folder = path.rpartition("/")[0]
    if path not in {entry.path for entry in client.list_artifacts(run.info.run_id, folder or None)}:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="artifact-") as copy:
        client.download_artifacts(run.info.run_id, path, copy)
        yield _inside(Path(copy), path)


def read_text(settings: Settings, run: "Run", path: str) -> str | None:
    """An artifact's text; None when there is no such artifact."""
    with artifact(settings, run, path) as file:
        return None if file is None else file.read_text(encoding="utf-8", errors="replace")


def _local_root(run: "Run") -> Path | None:
    uri = run.info.artifact_uri or ""
    if not uri.startswith(("file:", "/")):
        return None
    from mlflow.utils.file_utils import local_file_uri_to_path

    root = Path(local_file_uri_to_path(uri))
    # Recorded on another machine with its own disk: MLflow's client then says what it can do about it.
    return root if root.is_dir() else None


def _inside(root: Path, path: str) -> Path | None:
    """The file below the root; None when it is missing, or when a link leads out."""
    file = (root / path).resolve()
    return file if file.is_relative_to(root.resolve()) and file.is_file() else None
