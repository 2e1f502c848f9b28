"""What a page says when something below it cannot be read."""

import errno

import pytest
from requests import ConnectionError as NoConnection

from dashboard import data
from experiments.engines.base import EngineError, EngineUnavailableError
from experiments.locks import LockTimeout
from experiments.settings import Settings
from tests.dashboard.conftest import OpenPage
from tests.dashboard.reading import words
from tests.dashboard.seed import gpu_scaling


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EngineUnavailableError("at 1.2.3.4"), "Ray does not answer"),
        (EngineError("Ray 2.9 is not Ray 2.51"), "Ray refuses"),
        (OSError(errno.ENOSPC, "No space left on device"), "The data folder cannot be used"),
        (PermissionError(errno.EACCES, "Permission denied", "/srv/lab"), "The data folder cannot be used"),
        (LockTimeout("held"), "The data folder cannot be used"),
        (NoConnection("refused"), "The tracking store does not answer"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "The tracking store does not answer"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_cause(error: Exception, said: str) -> None:
    @data.from_the_store
    def read() -> None:
        raise error

    with pytest.raises(data.Unavailable, match=said) as caught:
        read()
    assert str(error) in caught.value.detail


def test_a_run_deleted_while_pages_still_count_on_it(home: Settings, open_page: OpenPage) -> None:
    made = gpu_scaling(home, (1, 2), 1)
    # The list of runs is read and kept; the run goes in MLflow's own page.
    data.runs()
    home.client().delete_run(made[2][0])

    app = open_page("scaling")
    assert not app.exception
    assert "A run was deleted meanwhile" in words(app)

    app.run()
    assert not app.exception
    assert "A run was deleted meanwhile" not in words(app)
