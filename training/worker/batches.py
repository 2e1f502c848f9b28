"""Where the steps of a run get their examples: held on the device, or streamed by tf.data. The same order for both.

Epoch e of a data set of n examples is the permutation `default_rng([seed, e])` of 0..n-1, cut into steps of the global
batch; replica r takes the r-th equal part of each step. So one device, many replicas and many workers train on the
same batches, and their losses can be compared. What fills no whole batch is left out, other examples in each epoch.
"""

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from training.datasets.base import Data, Split

Examples = Callable[[tf.Tensor, tf.Tensor | None], object]
"""A workload's `examples`: model inputs [b, ...] and labels [b] -> what `train_step` gets."""


@dataclass(frozen=True)
class Plan:
    """Which examples each replica gets.

    Attributes:
        seed: of the permutations.
        batch: examples a replica gets in one step.
        replicas: replicas in sync.
        steps: training steps an epoch.
    """

    seed: int
    batch: int
    replicas: int
    steps: int

    @property
    def global_batch(self) -> int:
        """Examples in one step."""
        return self.batch * self.replicas

    def order(self, epoch: int, examples: int) -> np.ndarray:
        """Indices of an epoch's examples, int32 [steps, replicas, batch]."""
        order = np.random.default_rng([self.seed, epoch]).permutation(examples)[: self.steps * self.global_batch]
        return order.astype(np.int32).reshape(self.steps, self.replicas, self.batch)


class Resident:
    """A split held whole, as stored, on the device of every local replica; batches are gathered by index in the step.

    Args:
        strategy: the run's strategy.
        split: features [n, ...] and labels [n] or None.
        scale: model input = float32(features) * scale.
        examples: the workload's `examples`.
    """

    def __init__(self, strategy: tf.distribute.Strategy, split: Split, scale: float, examples: Examples):
        self._strategy = strategy
        self._scale = scale
        self._examples = examples
        self.count = len(split.features)
        self.features = per_replica(strategy, lambda replica: split.features)
        labels = split.labels if split.labels is not None else np.zeros(self.count, np.int32)
        self.labels = per_replica(strategy, lambda replica: labels)

    def batch(self, features: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor) -> object:
        """What `train_step` gets for these examples. Runs in a replica, inside the compiled function."""
        with tf.name_scope("input"):
            return model_input(tf.gather(features, indices), tf.gather(labels, indices), self._scale, self._examples)


class ResidentSteps:
    """Training steps over a `Resident` split. Call `begin` at the start of an epoch, then `run`.

    Args:
        strategy: the run's strategy.
        data: the training split.
        plan: which examples each replica gets.
        train_step: takes one batch, in a replica.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, data: Resident, plan: Plan, train_step: Callable[[object], object]
    ):
        self._strategy, self._data, self._plan = strategy, data, plan
        self._indices: object = None
        self._begin_seconds = 0.0

        def step(features: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor, index: tf.Tensor) -> None:
            train_step(data.batch(features, labels, indices[index]))

        @tf.function
        def train(features: object, labels: object, indices: object, start: tf.Tensor, count: tf.Tensor) -> None:
            for index in tf.range(start, start + count):
                strategy.run(step, args=(features, labels, indices, index))

        self._train = train

    def begin(self, epoch: int) -> None:
        """Draws the epoch's order. Its cost counts as waiting for input, in the epoch's first window."""
        began = time.perf_counter()
        order = self._plan.order(epoch, self._data.count)
        self._indices = per_replica(self._strategy, lambda replica: order[:, replica])
        self._begin_seconds += time.perf_counter() - began

    def run(self, start: int, count: int) -> tuple[float, float]:
        """Runs steps [start, start + count) of the epoch.

        Returns:
            Seconds spent before the call (preparing input) and seconds that the steps themselves waited for input.
        """
        before, self._begin_seconds = self._begin_seconds, 0.0
        self._train(self._data.features, self._data.labels, self._indices, tf.constant(start), tf.constant(count))
        return before, 0.0

    def close(self) -> None:
        """Nothing runs by itself here."""


class StreamedSteps:
    """Training steps over a tf.data pipeline that gathers, sleeps `delay_ms` if asked to, and prefetches.

    Args:
        strategy: the run's strategy.
        data: the data set.
        plan: which examples each replica gets.
        examples: the workload's `examples`.
        train_step: takes one batch, in a replica.
        updated: reads every variable that a step updates; asked for in a replica, after the step.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        data: Data,
        plan: Plan,
        examples: Examples,
        train_step: Callable[[object], object],
        updated: Callable[[], list[tf.Tensor]],
    ):
        local = _local_replicas(strategy)
        # Each worker makes only its own replicas' batches; their static shape and endless number spare TensorFlow
        # an agreement among the workers in every step on whether there is another batch.
        dataset = strategy.distribute_datasets_from_function(lambda context: _pipeline(data, plan, local))
        self._iterator: object = iter(dataset)

        def step(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            with tf.name_scope("input"):
                prepared = model_input(batch[0], batch[1], data.scale, examples)
            train_step(prepared)
            with tf.control_dependencies(updated()):
                return tf.identity(tf.constant(0.0, tf.float64))

        @tf.function
        def train(iterator: object, count: tf.Tensor) -> tf.Tensor:
            waited = tf.zeros([], tf.float64)
            for _ in tf.range(count):
                # `waited` is there when the step before has updated its variables. Without that dependency TensorFlow
                # asks for the next batch while the step still computes, and its computing would count as waiting.
                with tf.control_dependencies([waited]):
                    asked = tf.timestamp()
                with tf.control_dependencies([asked]), tf.name_scope("input"):
                    batch = next(iterator)  # type: ignore[call-overload]
                with tf.control_dependencies(_tensors(batch)):
                    got = tf.timestamp()
                with tf.control_dependencies([got]):
                    done = strategy.run(step, args=(batch,))
                with tf.control_dependencies(_tensors(done)):
                    waited = waited + (got - asked)
            return waited

        self._train = train

    def begin(self, epoch: int) -> None:
        """The pipeline draws each epoch's order by itself, ahead of time."""

    def run(self, start: int, count: int) -> tuple[float, float]:
        """Runs the next `count` steps. Returns as `ResidentSteps.run` does."""
        return 0.0, float(self._train(self._iterator, tf.constant(count)))

    def close(self) -> None:
        """Ends the pipeline. Its threads call Python: left running, they would wait for ever as the process exits."""
        self._iterator = None
        gc.collect()


class Validation:
    """Validation over a `Resident` split that counts every example exactly once, on any number of replicas.

    Whole batches run as training does. The tail is dealt out one example after the other; a replica that gets none of
    it does nothing, so that no layer and no metric ever sees an empty batch: with oneDNN, a convolution of one has the
    shape of its input (TensorFlow 2.21), and the next layer refuses that.

    Args:
        strategy: the run's strategy.
        data: the validation split.
        plan: batch and replicas; its steps are not used.
        test_step: takes one batch, in a replica, and updates the model's metrics.
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, data: Resident, plan: Plan, test_step: Callable[[object], object]
    ):
        self._data = data
        self.steps = data.count // plan.global_batch
        count = self.steps * plan.global_batch
        whole = np.arange(count, dtype=np.int32).reshape(self.steps, plan.replicas, plan.batch)
        self._whole = per_replica(strategy, lambda replica: whole[:, replica])
        tail = np.arange(count, data.count, dtype=np.int32)
        shares = [tail[replica :: plan.replicas] for replica in range(plan.replicas)]
        self.tail = len(tail)
        # Padded to one length, of which `_share_size` says how much is meant.
        self._share = per_replica(
            strategy, lambda replica: np.pad(shares[replica], (0, plan.batch - len(shares[replica])))
        )
        self._share_size = per_replica(strategy, lambda replica: np.array(len(shares[replica]), np.int32))

        def step(features: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor, index: tf.Tensor) -> None:
            test_step(data.batch(features, labels, indices[index]))

        @tf.function
        def run_whole(features: object, labels: object, indices: object, count: tf.Tensor) -> None:
            for index in tf.range(count):
                strategy.run(step, args=(features, labels, indices, index))

        def tail_step(features: tf.Tensor, labels: tf.Tensor, share: tf.Tensor, size: tf.Tensor) -> None:
            def some() -> tf.Tensor:
                test_step(data.batch(features, labels, share[:size]))
                return tf.constant(True)

            tf.cond(size > 0, some, lambda: tf.constant(False))

        @tf.function
        def run_tail(features: object, labels: object, share: object, size: object) -> None:
            strategy.run(tail_step, args=(features, labels, share, size))

        self._run_whole, self._run_tail = run_whole, run_tail

    def run(self) -> None:
        """Passes over the whole split once."""
        features, labels = self._data.features, self._data.labels
        if self.steps:
            self._run_whole(features, labels, self._whole, tf.constant(self.steps))
        if self.tail:
            self._run_tail(features, labels, self._share, self._share_size)


def model_input(features: tf.Tensor, labels: tf.Tensor, scale: float, examples: Examples) -> object:
    """Stored examples -> what `train_step` gets."""
    return examples(tf.cast(features, tf.float32) * tf.constant(scale, tf.float32), labels)


def per_replica(strategy: tf.distribute.Strategy, value: Callable[[int], np.ndarray]) -> object:
    """A value for every local replica, on that replica's device.

    Args:
        strategy: the run's strategy.
        value: replica id in sync group -> the value.
    """
    devices = strategy.extended.worker_devices

    def make(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        replica = context.replica_id_in_sync_group
        with tf.device(devices[replica % len(devices)]):
            return tf.constant(value(replica))

    return strategy.experimental_distribute_values_from_function(make)


def _local_replicas(strategy: tf.distribute.Strategy) -> list[int]:
    """Ids in the sync group of this process's replicas."""
    ids: list[int] = []

    def take(context: tf.distribute.experimental.ValueContext) -> tf.Tensor:
        ids.append(context.replica_id_in_sync_group)
        return tf.constant(0)

    strategy.experimental_distribute_values_from_function(take)
    return ids


def _pipeline(data: Data, plan: Plan, local: list[int]) -> tf.data.Dataset:
    """An endless dataset of (features [batch, ...], labels [batch]), the local replicas in turn."""
    features = data.train.features
    labels = data.train.labels if data.train.labels is not None else np.zeros(len(features), np.int32)

    def indices() -> Iterator[np.ndarray]:
        for epoch in itertools.count():
            yield plan.order(epoch, len(features))[:, local].reshape(-1, plan.batch)

    def gather(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if data.delay_ms:
            time.sleep(data.delay_ms / 1000 / len(local))
        return features[index], labels[index]

    def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.numpy_function(gather, [index], [features.dtype, labels.dtype], stateful=False)
        values[0].set_shape([plan.batch, *data.shape])
        values[1].set_shape([plan.batch])
        return values[0], values[1]

    dataset = tf.data.Dataset.from_generator(
        indices, output_signature=tf.TensorSpec([plan.steps * len(local), plan.batch], tf.int32)
    )
    dataset = dataset.unbatch().apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    options = tf.data.Options()
    # Threads of its own: a pipeline that waits for storage must not hold a thread on which the step's ops run.
    options.threading.private_threadpool_size = 2
    loaded = dataset.map(load, num_parallel_calls=1, deterministic=True)
    return loaded.prefetch(2 * len(local)).with_options(options)


def _tensors(batch: object) -> list[tf.Tensor]:
    """Every local tensor of a distributed batch."""
    flat = tf.nest.flatten(batch, expand_composites=True)
    return [value for value in flat if isinstance(value, tf.Tensor)]
