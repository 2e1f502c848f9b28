"""A convolutional variational autoencoder with a train_step of its own: what a custom loop must do to be distributed.

Kingma and Welling, "Auto-Encoding Variational Bayes" (arXiv:1312.6114). Four things make its losses the same on one
device and on any number of replicas:

- the gradients of all replicas are summed, so each replica's mean loss is divided by their number;
- an example's noise depends on the seed, the step and its place in the global batch, not on the replica it landed on;
- batch normalization takes its statistics over the global batch (`synchronized`);
- its activations are smooth: with ReLU, rounding that differs between 1 and 2 replicas grew a thousandfold in 20 steps,
  through units that switch on or off.
"""

import random
from typing import Any

import keras
import tensorflow as tf
from keras import layers

LATENT = 16
"""Numbers that describe one image."""

_FILTERS = (16, 32)


@keras.saving.register_keras_serializable(package="speedup_lab")
class VariationalAutoencoder(keras.Model):
    """Image -> mean and log-variance of a code -> image. Calling it reconstructs from the mean, pixels in 0..1."""

    def __init__(self, shape: tuple[int, ...], name: str = "vae", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.image_shape = tuple(shape)
        self.encoder = _encoder()
        self.decoder = _decoder(self.image_shape)
        # Python's generator, which keras.utils.set_random_seed seeds alike in every process.
        self.noise_seed = random.randrange(2**31)
        self.loss_mean = keras.metrics.Mean(name="loss")
        self.reconstruction_mean = keras.metrics.Mean(name="reconstruction_loss")
        self.kl_mean = keras.metrics.Mean(name="kl_loss")
        self(keras.Input(self.image_shape))

    @property
    def metrics(self) -> list[keras.Metric]:
        """The three losses, each a mean over examples."""
        return [self.loss_mean, self.reconstruction_mean, self.kl_mean]

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Reconstructions [b, h, w, c] in 0..1 of images of the same shape, without sampling."""
        mean, _ = self._encode(images, training)
        return keras.ops.sigmoid(self.decoder(mean, training=training))

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step on this replica's part of the global batch."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            mean, log_variance = self._encode(images, training=True)
            code = mean + tf.exp(0.5 * log_variance) * self._noise(tf.shape(mean)[0])
            losses = _losses(images, self.decoder(code, training=True), mean, log_variance)
            loss = tf.reduce_mean(losses[0]) / tf.distribute.get_strategy().num_replicas_in_sync
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self._measure(losses)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Losses at the mean of the code: without sampling, so that they do not depend on how a batch was split."""
        images, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        mean, log_variance = self._encode(images, training=False)
        return self._measure(_losses(images, self.decoder(mean, training=False), mean, log_variance))

    def get_config(self) -> dict[str, Any]:
        """What Keras needs to make the model again."""
        return {"shape": list(self.image_shape), "name": self.name}

    def _encode(self, images: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
        mean, log_variance = tf.split(self.encoder(images, training=training), 2, axis=-1)
        return mean, log_variance

    def _noise(self, examples: tf.Tensor) -> tf.Tensor:
        """Standard normal [examples, LATENT]: this replica's rows of the noise of the whole batch.

        Rows are ordered as tf.distribute splits a batch: replica r has the r-th of equal, contiguous slices.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        seed = tf.stack([self.noise_seed, tf.cast(self.optimizer.iterations, tf.int32)])
        # A named generator: the one that TensorFlow would choose depends on the device.
        noise = tf.random.stateless_normal([replicas * examples, LATENT], seed, alg="philox")
        return tf.slice(noise, [replica * examples, 0], [examples, LATENT])

    def _measure(self, losses: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
        # One value per example, so that every example counts once, also where a replica's part is uneven or empty.
        for metric, values in zip(self.metrics, losses, strict=True):
            metric.update_state(values)
        return self.get_metrics_result()


def build_model(shape: tuple[int, ...], classes: int) -> keras.Model:
    """Builds the model.

    Args:
        shape: of one image, [height, width, channels], pixels in 0..1; both sides divide by 4.
        classes: not used: the images are their own targets.
    """
    del classes
    return VariationalAutoencoder(shape)


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Adam; losses and metrics are the model's own. XLA is off here; the loop decides about it."""
    model.compile(optimizer=keras.optimizers.Adam(learning_rate), jit_compile=False)


def examples(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """What `train_step` and `test_step` take: images [b, *shape] float32."""
    del labels
    return features


def _normalized(layer: layers.Layer) -> list[layers.Layer]:
    """A layer without bias (the normalization has one), batch normalization, and the activation."""
    return [
        layer,
        # Its moving averages must follow within the few hundred steps of a short run, hence the momentum.
        # Replicas of a training step are never empty, and validation uses the averages, so no statistic is of nothing.
        layers.BatchNormalization(momentum=0.9, synchronized=True, name=f"{layer.name}_normalization"),
        layers.Activation("silu", name=f"{layer.name}_silu"),
    ]


def _encoder() -> keras.Sequential:
    """Image -> [b, 2 * LATENT] float32: mean and log-variance. Built at its first call, under that call's device."""
    stack: list[layers.Layer] = []
    for number, filters in enumerate(_FILTERS):
        convolution = layers.Conv2D(filters, 3, 2, "same", use_bias=False, name=f"encoder_conv2d_{number}")
        stack += _normalized(convolution)
    stack += [layers.Flatten(name="encoder_flatten"), layers.Dense(2 * LATENT, dtype="float32", name="encoder_code")]
    return keras.Sequential(stack, name="encoder")


def _decoder(shape: tuple[int, ...]) -> keras.Sequential:
    """Code [b, LATENT] -> logits of the pixels [b, h, w, c] float32."""
    height, width, channels = shape
    small = (height // 4, width // 4, _FILTERS[-1])
    stack: list[layers.Layer] = [
        layers.Dense(small[0] * small[1] * small[2], activation="silu", name="decoder_dense"),
        layers.Reshape(small, name="decoder_reshape"),
    ]
    for number, filters in enumerate(reversed(_FILTERS)):
        convolution = layers.Conv2DTranspose(filters, 3, 2, "same", use_bias=False, name=f"decoder_conv2d_{number}")
        stack += _normalized(convolution)
    stack.append(layers.Conv2D(channels, 3, padding="same", dtype="float32", name="decoder_pixels"))
    return keras.Sequential(stack, name="decoder")


def _losses(
    images: tf.Tensor, logits: tf.Tensor, mean: tf.Tensor, log_variance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Loss, reconstruction loss and KL divergence in nats, each [b] (equation 10 of the paper).

    The reconstruction loss is the cross-entropy of the pixels, the divergence is to a standard normal; both are summed
    over one image.
    """
    images = tf.cast(images, tf.float32)
    pixels = tf.nn.sigmoid_cross_entropy_with_logits(labels=images, logits=logits)
    reconstruction = tf.reduce_sum(pixels, axis=[1, 2, 3])
    divergence = 0.5 * tf.reduce_sum(tf.square(mean) + tf.exp(log_variance) - 1.0 - log_variance, axis=1)
    return reconstruction + divergence, reconstruction, divergence
