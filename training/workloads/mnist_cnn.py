"""The guide's CNN for small images: three convolutions, two max-pools, two dense layers; Keras's own train_step."""

import keras
import tensorflow as tf
from keras import layers


def build_model(shape: tuple[int, ...], classes: int) -> keras.Model:
    """Builds the model; 93,322 parameters for 28x28x1 images of ten classes.

    Args:
        shape: of one image, [height, width, channels], pixels in 0..1.
        classes: how many, hence how many logits.
    """
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(32, 3, activation="relu", name="conv2d"),
            layers.MaxPooling2D(2, name="max_pooling2d"),
            layers.Conv2D(64, 3, activation="relu", name="conv2d_1"),
            layers.MaxPooling2D(2, name="max_pooling2d_1"),
            layers.Conv2D(64, 3, activation="relu", name="conv2d_2"),
            layers.Flatten(name="flatten"),
            layers.Dense(64, activation="relu", name="dense"),
            # float32 also under mixed precision: a softmax over half-precision logits is too coarse.
            layers.Dense(classes, dtype="float32", name="dense_1"),
        ],
        name="mnist_cnn",
    )


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Adam, cross-entropy from logits and accuracy. XLA is off here; the loop decides about it."""
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )


def examples(features: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What `train_step` and `test_step` take: images [b, *shape] float32 and class numbers [b] int32."""
    return features, labels
