"""The product's loop with everything around it switched off: no placement log, no journal, no telemetry, no MLflow.

Prints one JSON document with the seconds of each epoch's training.

    python -m tests.benchmarks.bare_loop SPEC_JSON
"""

import dataclasses
import json
import sys

from training import catalog
from training.spec import RunSpec
from training.worker import devices, strategies
from training.worker.loop import EpochResult, Loop, build
from training.worker.timing import Window


class Nothing:
    """Actions that do nothing but keep the epochs' figures."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self.examples = 0

    def on_first_step(self, seconds: float) -> None:
        """Ignored."""

    def on_window(self, epoch: int, window: Window) -> None:
        """Ignored."""

    def on_validation(self, epoch: int) -> None:
        """Ignored."""

    def on_epoch(self, result: EpochResult) -> None:
        """Keeps the epoch's training time."""
        self.epochs.append(result.training.seconds)
        self.examples = result.training.examples


def main(text: str) -> None:
    """Trains, and prints the figures."""
    spec = dataclasses.replace(RunSpec.from_json(text), log_device_placement=False)
    data = catalog.load(catalog.DATASETS[spec.dataset].path).load(spec.dataset_options)
    devices.configure(spec, 2)
    strategy = strategies.create(spec)
    model, examples = build(spec, strategy, data)
    actions = Nothing()
    Loop(spec, strategy, model, data, examples).run(actions)
    print(json.dumps({"epochs": actions.epochs, "examples": actions.examples}))


if __name__ == "__main__":
    main(sys.argv[1])
