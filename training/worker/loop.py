"""The training loop: Keras's own train_step under `strategy.run`, many steps a call, the same for every strategy.

The loop trains, validates and times; what happens with the figures (journal, tags, progress) is the business of the
actions it is given. It knows no MLflow and no files.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import keras
import tensorflow as tf

from training import catalog
from training.datasets.base import Data
from training.spec import RunSpec
from training.worker import timing
from training.worker.batches import Examples, Plan, Resident, ResidentSteps, StreamedSteps, Validation
from training.worker.timing import EpochTiming, Window


@dataclass(frozen=True)
class EpochResult:
    """One epoch: its timing, the model's metrics by Keras's names, and validation if there was one."""

    epoch: int
    training: EpochTiming
    logs: dict[str, float]
    validation_seconds: float


class Actions(Protocol):
    """What is done with the loop's figures, outside the clock."""

    def on_first_step(self, seconds: float) -> None:
        """The first step is done; tracing and compiling included."""

    def on_window(self, epoch: int, window: Window) -> None:
        """A window of training steps is done."""

    def on_validation(self, epoch: int) -> None:
        """Validation of an epoch begins."""

    def on_epoch(self, result: EpochResult) -> None:
        """An epoch is done, validation included."""


class Steps(Protocol):
    """Training steps over some kind of input."""

    def begin(self, epoch: int) -> None:
        """An epoch begins."""

    def run(self, start: int, count: int) -> tuple[float, float]:
        """Runs steps; returns seconds of preparing input before the call, and of waiting for it inside."""

    def close(self) -> None:
        """Ends whatever works ahead."""


class Loop:
    """Trains a compiled, built model.

    Args:
        spec: the run.
        strategy: under whose scope the model was made.
        model: a compiled Keras model with `train_step` and `test_step`.
        data: the data set.
        examples: the workload's `examples`.
    """

    def __init__(
        self, spec: RunSpec, strategy: tf.distribute.Strategy, model: keras.Model, data: Data, examples: Examples
    ):
        self.spec, self.strategy, self.model = spec, strategy, model
        self.plan = Plan(
            seed=spec.seed,
            batch=spec.per_replica_batch_size,
            replicas=strategy.num_replicas_in_sync,
            steps=catalog.steps_per_epoch(
                spec.dataset, spec.dataset_options, spec.global_batch_size, spec.max_steps_per_epoch
            ),
        )
        self._synchronize = timing.synchronizer(spec.device)
        self._done = 0
        train_step, test_step = model.train_step, model.test_step
        if spec.jit_compile:
            train_step = tf.function(train_step, jit_compile=True, reduce_retracing=True)
            test_step = tf.function(test_step, jit_compile=True, reduce_retracing=True)
        self._train_step = train_step
        self._steps: Steps
        if catalog.option_values(spec.dataset, spec.dataset_options)["pipeline"] == "tf_data":
            self._steps = StreamedSteps(strategy, data, self.plan, examples, train_step, self._updated)
        else:
            held = Resident(strategy, data.train, data.scale, examples)
            self._steps = ResidentSteps(strategy, held, self.plan, train_step)
        held_for_validation = Resident(strategy, data.validation, data.scale, examples)
        self._validation = Validation(strategy, held_for_validation, self.plan, test_step)
        self._prepare_state(held_for_validation)

    @property
    def jit_compiled(self) -> bool:
        """Whether XLA compiles the training step: as it was made, or because TensorFlow has XLA cluster every graph."""
        return bool(getattr(self._train_step, "_jit_compile", False) or tf.config.optimizer.get_jit())

    def run(self, actions: Actions) -> None:
        """Trains all epochs and validates after each. A loop runs once."""
        try:
            for epoch in range(self.spec.epochs):
                actions.on_epoch(self._epoch(epoch, actions))
        finally:
            self._steps.close()

    def _epoch(self, epoch: int, actions: Actions) -> EpochResult:
        training = EpochTiming()
        for start, count in self._windows(epoch):
            window = self._window(epoch, start, count)
            training.add(window)
            if self._done == 1:
                actions.on_first_step(window.seconds)
            actions.on_window(epoch, window)
        logs = self._metrics()
        actions.on_validation(epoch)
        began = time.perf_counter()
        self._validation.run()
        validation_logs = self._metrics()
        seconds = time.perf_counter() - began
        logs |= {f"val_{name}": value for name, value in validation_logs.items()}
        return EpochResult(epoch, training, logs, seconds)

    def _windows(self, epoch: int) -> Iterator[tuple[int, int]]:
        """(first step, number of steps) of an epoch's windows; the very first step of a run has one of its own."""
        start = 0
        if epoch == 0:
            yield 0, 1
            start = 1
        while start < self.plan.steps:
            count = min(self.spec.steps_per_execution, self.plan.steps - start)
            yield start, count
            start += count

    def _window(self, epoch: int, start: int, count: int) -> Window:
        began = time.perf_counter()
        if start == 0:
            self._steps.begin(epoch)
        prepared, waited = self._steps.run(start, count)
        self._synchronize()
        seconds = time.perf_counter() - began
        self._done += count
        return Window(self._done, count, count * self.plan.global_batch, seconds, prepared + waited, time.time())

    def _metrics(self) -> dict[str, float]:
        """The metrics summed up since the last call, over all replicas of all workers; resets them."""
        logs = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        self.model.reset_metrics()
        return logs

    def _updated(self) -> list[tf.Tensor]:
        """Reads every variable that a training step updates: there when the step is done."""
        return [tf.convert_to_tensor(variable.value) for variable in self.model.trainable_variables]

    def _prepare_state(self, data: Resident) -> None:
        """Creates optimizer and metric state. A traced function under MirroredStrategy may create none of it."""
        with self.strategy.scope():
            self.model.optimizer.build(self.model.trainable_variables)

        def once(features: tf.Tensor, labels: tf.Tensor) -> None:
            self.model.test_step(data.batch(features, labels, tf.constant([0])))

        self.strategy.run(once, args=(data.features, data.labels))
        self.model.reset_metrics()


def build(spec: RunSpec, strategy: tf.distribute.Strategy, data: Data) -> tuple[keras.Model, Examples]:
    """The workload's model, seeded, compiled, under the strategy's scope, and how it takes examples."""
    workload = catalog.load(catalog.WORKLOADS[spec.workload].path)
    keras.utils.set_random_seed(spec.seed)
    with strategy.scope():
        model = workload.build_model(data.shape, data.classes)
        workload.compile_model(model, spec.learning_rate)
    examples: Callable[[tf.Tensor, tf.Tensor | None], object] = workload.examples
    return model, examples
