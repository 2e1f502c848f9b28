"""Data folders with a real MLflow store for tests."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from experiments.settings import Settings


def settings_in(home: Path, **variables: str) -> Settings:
    """Settings of a data folder, with nothing from the developer's environment."""
    return Settings.from_environment({"SPEEDUP_LAB_HOME": str(home), **variables})


def copied(store: Path, home: Path) -> Settings:
    """A data folder that starts as a copy of a prepared store."""
    home.mkdir()
    shutil.copy(store, home / "mlflow.db")
    settings = settings_in(home).prepare()
    with closing(sqlite3.connect(home / "mlflow.db")) as connection, connection:
        connection.execute(
            "UPDATE experiments SET artifact_location = ? WHERE name = ?",
            (settings.artifacts_folder.as_uri(), settings.experiment),
        )
    return settings
