"""A model with its own train_step, noise and batch normalization: the same losses on every strategy."""

import typing

import pytest

from tests.support.training_run import Outcome, train

LOSSES = ("loss", "reconstruction_loss", "kl_loss")


def run(**fields: typing.Any) -> Outcome:
    # 35 validation examples in batches of 16: two whole ones and three left over. Two workers have 2 and 1 of them; of
    # four replicas one has none, and its batch normalization must survive that. One epoch: a second one brings a
    # diagnosis, which costs as much as all the rest.
    return train(
        workload="vae",
        dataset_options={"examples": 240, "validation_examples": 35, "shape": "12x8x3"},
        global_batch_size=16,
        epochs=1,
        log_device_placement=False,
        seed=5,
        **fields,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "mirrored", "replicas": 4, "logical_devices": 4},
        {"strategy": "multi_worker_mirrored", "workers": 2},
    ],
    ids=["4 replicas", "2 workers"],
)
def test_losses_are_those_of_one_device(fields: dict[str, typing.Any]) -> None:
    one, many = run(), run(**fields)
    assert many.end() == one.end() == ("FINISHED", "")
    for prefix in ("", "val_"):
        for name in LOSSES:
            values = many.metric(prefix + name)
            assert len(values) == 1
            assert values == pytest.approx(one.metric(prefix + name), rel=1e-4), prefix + name
