"""What a step is made of, measured once the run is over: its times are taken, and its weights are used no more.

Every worker takes part and does the same number of everything, since most of it is done together. It costs about as
much as the run's first step did, nearly all of it for tracing the step anew.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from training.datasets.base import Data, Split
from training.names import Metric
from training.worker import timing
from training.worker.batches import Examples, Plan, Resident, ResidentSteps
from training.worker.loop import Loop

WARM_UPS, SAMPLES = 2, 10
MORE_SAMPLES, SMALL_MODEL = 40, 1_000_000
"""The reduction of a model of fewer parameters takes milliseconds, which a few samples do not tell from noise."""
MOST_STEPS = 5
"""Steps in one sample of `step_one_example`, at most: enough that the call of the function hardly counts."""


def measured(loop: Loop, data: Data, examples: Examples) -> Iterator[tuple[str, float]]:
    """Measures one thing after the other, and spoils the model's weights in the end.

    Args:
        loop: one that has run.
        data: its data set.
        examples: the workload's `examples`.

    Yields:
        (names.Metric.TIME_..., seconds): the all-reduce for several replicas; the step unless XLA is on, which would
        have to compile it for its batch.
    """
    synchronize = timing.synchronizer(loop.spec.device)
    with _apart_from_the_placement_log():
        if loop.plan.replicas > 1:
            yield Metric.TIME_ALL_REDUCE, all_reduce_seconds(loop.strategy, loop.model, synchronize)
        if not loop.spec.jit_compile:
            count = min(loop.spec.steps_per_execution, loop.plan.steps, MOST_STEPS)
            yield Metric.TIME_STEP_ONE_EXAMPLE, step_seconds(loop, data, examples, count, synchronize)


@contextlib.contextmanager
def _apart_from_the_placement_log() -> Iterator[None]:
    """What TensorFlow writes to file descriptor 2 goes to 1 meanwhile, which is not read for placements.

    Placement logging itself cannot be switched off any more: graphs are logged as the context was set up to.
    """
    kept = os.dup(2)
    os.dup2(1, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def all_reduce_seconds(strategy: tf.distribute.Strategy, model: keras.Model, synchronize: Callable[[], None]) -> float:
    """Seconds of one sum over all replicas of what has the shapes and types of the model's gradients.

    Keras's optimizer reduces them all in one call, and so does this. What the call of a compiled function costs by
    itself is taken off: in training many steps share it.
    """

    def read() -> list[tf.Tensor]:
        # The weights stand for their gradients. Constants would not do: TensorFlow would add them up beforehand.
        return [tf.identity(variable.value) for variable in model.trainable_variables]

    def reduce() -> list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        reduced: list[tf.Tensor] = context.all_reduce(tf.distribute.ReduceOp.SUM, read())
        return reduced

    with_reduction, without = tf.function(lambda: strategy.run(reduce)), tf.function(lambda: strategy.run(read))
    # In turn, so that whatever else the machine does meets both alike. By the size and not by the clock, so that all
    # workers take part in the same number of reductions.
    samples = MORE_SAMPLES if model.count_params() < SMALL_MODEL else SAMPLES
    seconds = [
        _seconds(with_reduction, synchronize) - _seconds(without, synchronize) for _ in range(WARM_UPS + samples)
    ]
    return max(statistics.median(seconds[WARM_UPS:]), 0.0)


def step_seconds(loop: Loop, data: Data, examples: Examples, count: int, synchronize: Callable[[], None]) -> float:
    """Seconds of one training step with a single example per replica, in windows of `count` steps."""
    plan = Plan(seed=loop.plan.seed, batch=1, replicas=loop.plan.replicas, steps=count)
    some = np.arange(plan.steps * plan.replicas) % len(data.train)
    labels = data.train.labels
    few = Split(data.train.features[some], None if labels is None else labels[some])
    held = Resident(loop.strategy, few, data.scale, examples)
    steps = ResidentSteps(loop.strategy, held, plan, loop.model.train_step)
    steps.begin(0)
    return median_seconds(lambda: steps.run(0, count), synchronize) / count


def median_seconds(call: Callable[[], object], synchronize: Callable[[], None]) -> float:
    """Median seconds of a call, device finished, after calls to warm up."""
    return statistics.median([_seconds(call, synchronize) for _ in range(WARM_UPS + SAMPLES)][WARM_UPS:])


def _seconds(call: Callable[[], object], synchronize: Callable[[], None]) -> float:
    synchronize()
    began = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - began
