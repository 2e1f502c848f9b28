"""The environment of a run: versions, processors, GPUs, code. Read after the first step, when it delays nothing."""

import os
import platform
import sys
import typing
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.profiler import profiler_v2
from tensorflow.python.util import _pywrap_util_port

from training import checkout, hardware
from training.names import Tag

# Variables that change what TensorFlow does. Not everything, and not all of TF_: others hold secrets (TF_VAR_...).
_TELLING = (
    "CUDA_",
    "KERAS_BACKEND",
    "NCCL_",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_",
    "TF_CONFIG",
    "TF_CPP_",
    "TF_CUDNN_",
    "TF_DETERMINISTIC_",
    "TF_ENABLE_",
    "TF_FORCE_",
    "TF_GPU_",
    "TF_NUM_",
    "TF_XLA_",
    "XLA_",
)


def describe() -> dict[str, str]:
    """The environment as tags (`names.Tag`). GPU tags are there if TensorFlow sees a GPU in this process."""
    build = tf.sysconfig.get_build_info()
    tags = {
        Tag.PYTHON: platform.python_version(),
        Tag.TENSORFLOW: tf.__version__,
        Tag.KERAS: keras.__version__,
        Tag.NUMPY: np.__version__,
        Tag.CUDA: str(build.get("cuda_version", "")),
        Tag.CUDNN: str(build.get("cudnn_version", "")),
        Tag.GIT_COMMIT: checkout.commit().commit,
        Tag.CPU_MODEL: hardware.cpu_model(),
        Tag.CPU_COUNT: str(hardware.usable_cpus()),
        Tag.HOST: platform.node(),
    }
    ordinals = _visible_ordinals()
    if ordinals:
        driver = hardware.gpus()
        shown = hardware.visible(driver.found)
        used = [shown[ordinal] for ordinal in ordinals if ordinal < len(shown)]
        tags |= {
            Tag.GPU_MODEL: ", ".join(dict.fromkeys(gpu.name for gpu in used)),
            Tag.GPU_IDS: hardware.gpu_ids(ordinals, shown),
            Tag.DRIVER: driver.driver,
        }
    return {name: value for name, value in tags.items() if value}


def onednn_is_on() -> bool:
    """Whether TensorFlow computes with oneDNN's kernels on the CPU; it decides when it is imported."""
    # TensorFlow has no public way to ask.
    return bool(_pywrap_util_port.IsMklEnabled())


def profiler_is_on() -> bool:
    """Whether TensorFlow's profiler runs in this process just now, whoever started it."""
    # TensorFlow has no public way to ask.
    return profiler_v2._profiler is not None


def _visible_ordinals() -> list[int]:
    """CUDA ordinals of the GPUs this process left visible: `/physical_device:GPU:1` -> 1."""
    return [int(device.name.rsplit(":", 1)[1]) for device in tf.config.get_visible_devices("GPU")]


def full() -> dict[str, typing.Any]:
    """Everything of `describe` and more, as plain JSON values, for environment.json."""
    driver = hardware.gpus()
    return {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": {"system": platform.system(), "release": platform.release(), "machine": platform.machine()},
        "host": platform.node(),
        "cpu": {
            "model": hardware.cpu_model(),
            "usable": hardware.usable_cpus(),
            "of_host": os.cpu_count(),
            "affinity": sorted(os.sched_getaffinity(0)),
        },
        "gpus": [asdict(gpu) for gpu in hardware.visible(driver.found)],
        "driver": {"version": driver.driver, "cuda": driver.cuda, "error": driver.error},
        "tensorflow": {
            "version": tf.__version__,
            "keras": keras.__version__,
            "build": {name: _plain(value) for name, value in tf.sysconfig.get_build_info().items()},
            "physical_devices": [device.name for device in tf.config.list_physical_devices()],
            "visible_devices": [device.name for device in tf.config.get_visible_devices()],
            "logical_devices": [device.name for device in tf.config.list_logical_devices()],
        },
        "packages": packages(),
        "git": asdict(checkout.commit()),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_TELLING)},
        "tags": describe(),
    }


def _plain(value: typing.Any) -> typing.Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def packages() -> dict[str, str]:
    """Installed distributions and their versions, read from the names of their folders: parsing them takes long."""
    found = {}
    for folder in reversed(sys.path):  # the first on the path is what is imported
        for info in Path(folder or ".").glob("*.dist-info"):
            name, _, version = info.stem.rpartition("-")
            found[name.lower().replace("_", "-")] = version
    return dict(sorted(found.items()))
