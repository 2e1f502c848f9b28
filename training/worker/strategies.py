"""One factory for every tf.distribute strategy a run may name."""

import tensorflow as tf

from training.spec import RunSpec


class StrategyError(RuntimeError):
    """The strategy that TensorFlow made is not the one that was asked for."""


def create(spec: RunSpec) -> tf.distribute.Strategy:
    """Makes the strategy and checks that it has the replicas that were asked for.

    Blocks until all workers have joined, for several workers.

    Raises:
        StrategyError: an unknown name, or another number of replicas in sync than the spec's.
    """
    factory = _FACTORIES.get(spec.strategy)
    if factory is None:
        raise StrategyError(f"strategy={spec.strategy!r} is unknown: choose one of {', '.join(_FACTORIES)}")
    strategy = factory(spec)
    if strategy.num_replicas_in_sync != spec.total_replicas:
        raise StrategyError(
            f"asked {spec.total_replicas} replicas, TensorFlow has {strategy.num_replicas_in_sync} in sync: "
            "is TF_CONFIG set for every worker, before TensorFlow starts?"
        )
    return strategy


def _device_names(spec: RunSpec) -> list[str]:
    return [f"/{spec.device}:{index}" for index in range(spec.replicas)]


def _one_device(spec: RunSpec) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy(_device_names(spec)[0])


def _mirrored(spec: RunSpec) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(_device_names(spec))


def _multi_worker_mirrored(spec: RunSpec) -> tf.distribute.Strategy:
    # Ring all-reduce beats the automatic choice between CPUs; between GPUs the automatic choice is NCCL.
    implementation = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementation.RING if spec.device == "cpu" else implementation.AUTO
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


_FACTORIES = {
    "one_device": _one_device,
    "mirrored": _mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
}
