"""Runs in MLflow as the queue and a supervisor leave them, without either."""

from experiments import queue
from experiments.settings import Settings
from training.names import Artifact, RunStatus
from training.spec import RunSpec

TINY = RunSpec(
    dataset="synthetic",
    dataset_options={"examples": 640},
    global_batch_size=64,
    epochs=4,
    steps_per_execution=5,
    name="tiny",
)


def new_run(settings: Settings, run_spec: RunSpec | None = TINY, status: str = RunStatus.RUNNING) -> str:
    """A run in MLflow as the queue and a supervisor leave it, without either."""
    client = settings.client()
    run_id = client.create_run(
        settings.experiment_id(), run_name=run_spec.display_name if run_spec else None
    ).info.run_id
    if run_spec:
        for name, value in queue.params(run_spec).items():
            client.log_param(run_id, name, value)
        client.log_text(run_id, run_spec.to_json(), Artifact.SPEC)
    client.update_run(run_id, status=status)
    return str(run_id)
