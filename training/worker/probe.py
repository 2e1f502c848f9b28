"""What TensorFlow says about itself and its devices: `python -m training.worker.probe` prints one JSON document.

For processes that must not import TensorFlow. Why no GPU is seen, TensorFlow writes from C++ to file descriptor 2,
so that goes to a file here and its telling lines come with the answer.
"""

import json
import os
import platform
import sys
import tempfile
import typing
from pathlib import Path

from training.worker.lean_import import lean_import
from training.worker.placement import redirect_stderr
from training.worker.post_mortem import gpu_reasons


def probe() -> dict[str, typing.Any]:
    """Imports TensorFlow and asks for its physical devices. Initializes none of them.

    Returns:
        `python`, `tensorflow`, `keras`, `build`, `devices` (name, type), `gpus` (name, model, compute_capability) and
        `error`: why TensorFlow cannot be imported, empty if it can; the rest is then missing.
    """
    found: dict[str, typing.Any] = {"python": platform.python_version(), "error": ""}
    try:
        with lean_import():
            import keras
            import tensorflow as tf
    except Exception as error:  # a broken installation raises whatever it likes; the answer says what
        return found | {"error": f"{type(error).__name__}: {error}"}
    gpus = []
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        capability = details.get("compute_capability")
        gpus.append(
            {
                "name": device.name,
                "model": details.get("device_name", ""),
                "compute_capability": ".".join(map(str, capability)) if capability else "",
            }
        )
    return found | {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "build": {
            name: list(value) if isinstance(value, list | tuple) else value
            for name, value in tf.sysconfig.get_build_info().items()
        },
        "devices": [{"name": device.name, "type": device.device_type} for device in tf.config.list_physical_devices()],
        "gpus": gpus,
    }


def main() -> int:
    """Prints the document on stdout and nothing else, whatever libraries print there."""
    answer_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stderr"
        redirect_stderr(log)
        os.dup2(2, 1)
        found = probe()
        found["reasons"] = gpu_reasons(log.read_text(errors="replace"))
    json.dump(found, answer_to, default=str)
    answer_to.write("\n")
    answer_to.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
