"""What a fork server imports once, for all that are forked from it: TensorFlow, as a training process imports it."""

import os

# Read while TensorFlow is imported, or once afterwards.
os.environ |= {
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_ENABLE_ONEDNN_OPTS": "1",
}

from training.worker.lean_import import lean_import

with lean_import():
    import keras  # noqa: F401
    import tensorflow as tf  # noqa: F401

    from training.worker import devices, diagnosis, environment, loop, process, strategies  # noqa: F401
