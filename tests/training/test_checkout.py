"""The commit of a checkout: clean, changed, without commits, outside a repository, without git."""

import subprocess
from pathlib import Path

import pytest

from training.checkout import Commit, commit


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A repository with one commit and an untracked file."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init")
    (folder / "file").write_text("a")
    git(folder, "add", "file")
    git(folder, "commit", "-m", "one")
    (folder / "untracked").write_text("a")
    return folder


def test_a_clean_checkout(checkout):
    assert commit(checkout) == Commit(git(checkout, "rev-parse", "HEAD"), dirty=False)


def test_a_changed_checkout(checkout):
    (checkout / "file").write_text("b")
    assert commit(checkout) == Commit(git(checkout, "rev-parse", "HEAD"), dirty=True)


def test_nothing_is_locked_while_looking(checkout):
    (checkout / ".git/index.lock").touch()
    assert commit(checkout).commit


def test_without_a_commit_a_repository_or_git_it_is_empty(checkout, tmp_path, monkeypatch):
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert commit(fresh) == Commit()
    git(fresh, "init")
    assert commit(fresh) == Commit()
    assert commit(tmp_path / "missing") == Commit()
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit(checkout) == Commit()
