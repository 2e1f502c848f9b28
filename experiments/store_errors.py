"""What a tracking store that does not answer raises: one list for all who must tell it from a fault of their own."""

import errno

_DISK = ("database or disk is full", "disk I/O error", "readonly database", "unable to open database file")
"""What SQLite says of its file's disk."""


def store_errors() -> tuple[type[Exception], ...]:
    """The exceptions of MLflow, its database, its HTTP client and the file system.

    Imports MLflow, so a command that only prints help should not call it.
    """
    import requests
    import sqlalchemy.exc
    from mlflow.exceptions import MlflowException

    from experiments.locks import LockTimeout

    return MlflowException, sqlalchemy.exc.SQLAlchemyError, requests.RequestException, OSError, LockTimeout


def is_of_this_machine(error: Exception) -> bool:
    """Whether one of `store_errors` is about a file or a lock of this machine, and no sign of a store that is away."""
    import requests
    import sqlalchemy.exc

    from experiments.locks import LockTimeout

    if isinstance(error, sqlalchemy.exc.SQLAlchemyError) or "sqlite3" in str(error):
        return any(words in str(error) for words in _DISK)
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return error.filename is not None or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
    return isinstance(error, LockTimeout)
