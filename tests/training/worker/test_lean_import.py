"""TensorFlow is imported without packages that only Keras's extras need, which others still find."""

from tests.support.fresh_process import run_python


def test_keras_does_without_and_others_find_them():
    found = run_python(
        """
import gc, json, sys, threading
from training.worker.lean_import import lean_import

here = []
with lean_import():
    import tensorflow as tf
    after_import = sorted({"sklearn", "matplotlib"} & set(sys.modules))
    reader = threading.Thread(target=lambda: here.append(__import__("sklearn").__name__))
    reader.start()
    reader.join()
    collected = [gc.isenabled()]
collected.append(gc.isenabled())
gc.disable()
with lean_import():
    pass
collected.append(gc.isenabled())
import keras, matplotlib
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
print(json.dumps({
    "after import": after_import,
    "another thread": here,
    "collected": collected,
    "left out of it": gc.get_freeze_count() > 100_000,
    "later": matplotlib.__name__,
    "left": [type(finder).__module__ for finder in sys.meta_path if "training" in type(finder).__module__],
    "parameters": model.count_params(),
}))
""",
        lean=False,
    )
    assert found == {
        "after import": [],
        "another thread": ["sklearn"],
        "collected": [False, True, False],
        "left out of it": True,
        "later": "matplotlib",
        "left": [],
        "parameters": 3,
    }
