"""A model with its own train_step, noise and batch normalization: the same losses on every strategy."""

import pytest

from tests.support.training_run import Outcome, train

LOSSES = ("loss", "reconstruction_loss", "kl_loss")


def run(replicas: int, **fields: object) -> Outcome:
    # 37 validation examples in batches of 16: two whole ones and five left over, for up to four replicas.
    return train(
        workload="vae",
        dataset_options={"examples": 120, "validation_examples": 37, "shape": "12x8x3"},
        global_batch_size=16,
        epochs=2,
        strategy="mirrored" if replicas > 1 else "one_device",
        replicas=replicas,
        logical_devices=replicas if replicas > 1 else 0,
        log_device_placement=False,
        seed=5,
        **fields,
    )


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_have_the_losses_of_one_device(replicas: int) -> None:
    one, many = run(1), run(replicas)
    assert many.end() == one.end()
    for prefix in ("", "val_"):
        for name in LOSSES:
            values = many.metric(prefix + name)
            assert len(values) == 2
            assert values == pytest.approx(one.metric(prefix + name), rel=1e-4), prefix + name
