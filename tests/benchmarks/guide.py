"""The guide's own code, as a newcomer would write it: numpy arrays into `fit`, batch 64, the whole set.

Prints one JSON document: seconds of each epoch's training, and when the first step was done (unix seconds).

    python -m tests.benchmarks.guide EPOCHS [STEPS]
"""

import gzip
import json
import sys
import time

import numpy as np
import tensorflow as tf

FOLDER = "/usr/share/datasets/fashion-mnist"


def read(name: str, header: int) -> np.ndarray:
    """The bytes of an IDX file after its header."""
    with gzip.open(f"{FOLDER}/{name}") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


class Clock(tf.keras.callbacks.Callback):
    """Takes the time of every epoch, and of the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[float] = []
        self.first_step_at = 0.0
        self._began = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(time.perf_counter() - self._began)

    def on_train_batch_end(self, batch, logs=None):
        self.first_step_at = self.first_step_at or time.time()


def main(epochs: int, steps: int | None) -> None:
    """Trains, and prints the figures."""
    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1) / 255.0
    labels = read("train-labels-idx1-ubyte.gz", 8)
    if steps:
        images, labels = images[: steps * 64], labels[: steps * 64]
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # "auto" would mean XLA on some machines and not on others; on a CPU it is slower, so this favours the guide.
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"], jit_compile=False)
    clock = Clock()
    model.fit(images, labels, batch_size=64, epochs=epochs, verbose=0, callbacks=[clock])
    print(json.dumps({"epochs": clock.epochs, "examples": len(images), "first_step_at": clock.first_step_at}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
