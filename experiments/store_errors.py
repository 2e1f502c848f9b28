"""What a tracking store that does not answer raises: one list for all who must tell it from a fault of their own."""


def store_errors() -> tuple[type[Exception], ...]:
    """The exceptions of MLflow, its database, its HTTP client and the file system.

    Imports MLflow, so a command that only prints help should not call it.
    """
    import requests
    import sqlalchemy.exc
    from mlflow.exceptions import MlflowException

    from experiments.locks import LockTimeout

    return MlflowException, sqlalchemy.exc.SQLAlchemyError, requests.RequestException, OSError, LockTimeout
