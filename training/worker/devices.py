"""Devices of a training process: what the spec asks for, set before TensorFlow touches any of them.

Everything here must run before the first op: TensorFlow fixes its devices at first use, which is why every run is a
process of its own.
"""

from dataclasses import dataclass

import keras
import tensorflow as tf

from training import hardware
from training.spec import RunSpec


class DeviceError(RuntimeError):
    """What was asked for is not what TensorFlow sees. The message is one line with the cause."""


@dataclass(frozen=True)
class Devices:
    """Devices of this worker, as short names (`GPU:0`).

    Attributes:
        asked: `RunSpec.devices_asked`.
        seen: the logical devices TensorFlow reports after configuration.
        used: those that take part in training, one a replica.
    """

    asked: str
    seen: tuple[str, ...]
    used: tuple[str, ...]


def configure(spec: RunSpec, cpus_per_worker: int) -> None:
    """Applies threads, visible devices, memory options, simulated devices, determinism and precision.

    Args:
        spec: the run.
        cpus_per_worker: processor cores this worker may use.

    Raises:
        DeviceError: fewer GPUs than asked for.
    """
    threads = spec.cpu_threads or cpus_per_worker
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if spec.device == "gpu":
        _configure_gpus(spec)
    else:
        tf.config.set_visible_devices([], "GPU")
        if spec.logical_devices:
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(
                cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(spec.logical_devices)]
            )
    tf.debugging.set_log_device_placement(spec.log_device_placement)
    if spec.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy(spec.precision)


def report(spec: RunSpec) -> Devices:
    """What TensorFlow sees now. Initializes the devices, so call it after `configure` and after the strategy is made.

    Raises:
        DeviceError: fewer logical devices of the asked kind than the run needs.
    """
    kind = spec.device.upper()
    logical = [
        short_name(device.name) for device in tf.config.list_logical_devices() if device.device_type in ("CPU", "GPU")
    ]
    of_kind = [name for name in logical if name.startswith(kind)]
    if len(of_kind) < spec.replicas:
        raise DeviceError(f"asked {spec.replicas} {kind} devices, TensorFlow sees {len(of_kind)}")
    return Devices(asked=spec.devices_asked, seen=tuple(logical), used=tuple(of_kind[: spec.replicas]))


def short_name(device: str) -> str:
    """`/job:localhost/replica:0/task:0/device:CPU:0` or `/device:CPU:0` -> `CPU:0`."""
    return ":".join(device.split(":")[-2:])


def peak_gpu_memory_mb(devices: Devices) -> dict[int, float]:
    """Peak of TensorFlow's allocator on each used GPU, by index, in MB (10^6 bytes). Empty on a CPU run."""
    peaks = {}
    for name in devices.used:
        kind, index = name.split(":")
        if kind == "GPU":
            peaks[int(index)] = tf.config.experimental.get_memory_info(name)["peak"] / 1e6
    return peaks


def _configure_gpus(spec: RunSpec) -> None:
    wanted = spec.gpus_per_worker
    physical = tf.config.list_physical_devices("GPU")
    if len(physical) < wanted:
        raise DeviceError(f"asked {wanted} GPU{'s' if wanted > 1 else ''}, TensorFlow sees {len(physical)}")
    visible = physical[:wanted]
    tf.config.set_visible_devices(visible, "GPU")
    if spec.logical_devices:
        slice_mib = spec.memory_limit_mib or _slice_mib(visible[0], spec.logical_devices)
        tf.config.set_logical_device_configuration(
            visible[0],
            [tf.config.LogicalDeviceConfiguration(memory_limit=slice_mib) for _ in range(spec.logical_devices)],
        )
        return
    # On every visible GPU: TensorFlow refuses growth that differs between GPUs.
    for gpu in visible:
        if spec.memory_growth:
            tf.config.experimental.set_memory_growth(gpu, True)
        elif spec.memory_limit_mib is not None:
            tf.config.set_logical_device_configuration(
                gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=spec.memory_limit_mib)]
            )


def _slice_mib(gpu: "tf.config.PhysicalDevice", slices: int) -> int:
    """An equal share of the GPU's memory, with a tenth left for CUDA itself. TensorFlow demands a number.

    TensorFlow counts what CUDA shows this process, and the driver counts all of the machine's.
    """
    driver, ordinal = hardware.gpus(), int(gpu.name.rsplit(":", 1)[1])
    shown = hardware.visible(driver.found)
    if ordinal >= len(shown):
        why = driver.error or "it is not in the driver's list, as a slice (MIG) is not"
        raise DeviceError(f"the memory of {gpu.name} is not known ({why}): set memory_limit_mib")
    return int(shown[ordinal].memory_mib * 0.9 / slices)
