"""Manual placement: the layers a run names are made and computed on the devices it names."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.distribute import numpy_dataset


def place_layers(mapping: Mapping[str, str]) -> None:
    """From now on, in this process, puts the named layers' variables and ops under `tf.device`.

    Call it before the model is built. A layer inside a named one goes with it, unless it is named itself. An
    optimizer's slots follow their variable, because Keras asks the strategy to put them beside it. Gradients do not:
    `tf.device` covers the ops made inside it, and TensorFlow makes those of the backward pass later, on the
    strategy's own device.

    Args:
        mapping: layer name -> device, such as `{"conv2d": "/CPU:1"}`. Nothing is done when it is empty.
    """
    if not mapping:
        return
    devices = dict(mapping)
    layer_class = keras.layers.Layer
    call, add_weight = layer_class.__call__, layer_class.add_weight
    entered: list[str] = []  # devices of the named layers being called, innermost last

    @functools.wraps(call)
    @tf.autograph.experimental.do_not_convert
    def call_on_device(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        device = devices.get(self.name)
        if device is None:
            return call(self, *args, **kwargs)
        entered.append(device)
        try:
            with tf.device(device):
                return call(self, *args, **kwargs)
        finally:
            entered.pop()

    @functools.wraps(add_weight)
    def add_weight_on_device(self: keras.Layer, *args: Any, **kwargs: Any) -> Any:
        device = devices.get(self.name) or (entered[-1] if entered else None)
        if device is None:
            return add_weight(self, *args, **kwargs)
        with _variables_on(device):
            variable = add_weight(self, *args, **kwargs)
        if variable._value is None:
            # A layer first called inside another's symbolic call: Keras makes the variable when that call has ended.
            initialize = variable._deferred_initialize

            def initialize_on_device() -> None:
                with _variables_on(device):
                    initialize()

            variable._deferred_initialize = initialize_on_device
        return variable

    layer_class.__call__ = call_on_device
    layer_class.add_weight = add_weight_on_device


@contextlib.contextmanager
def _variables_on(device: str) -> Iterator[None]:
    """Variables are created on this device, also in the scope of a strategy, which would use its own."""

    def on_that_device(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        # OneDeviceStrategy puts its device inside any tf.device; this is how its colocate_vars_with says otherwise.
        if tf.distribute.has_strategy() and kwargs.get("colocate_with") is None:
            kwargs["colocate_with"] = numpy_dataset.SingleDevice(device)
        return next_creator(**kwargs)

    # Keras creates variables outside the graph being traced, so that is where the scopes must be.
    with tf.init_scope(), tf.device(device), tf.variable_creator_scope(on_that_device):
        yield
