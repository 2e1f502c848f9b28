"""A model with its own train_step, noise and batch normalization: the same losses on every strategy."""

import typing

import pytest

from tests.support.training_run import Outcome, train

LOSSES = ("loss", "reconstruction_loss", "kl_loss")


def run(**fields: typing.Any) -> Outcome:
    # 37 validation examples in batches of 16: two whole ones and five left over, for up to four replicas.
    return train(
        workload="vae",
        dataset_options={"examples": 120, "validation_examples": 37, "shape": "12x8x3"},
        global_batch_size=16,
        epochs=2,
        log_device_placement=False,
        seed=5,
        **fields,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "mirrored", "replicas": 2, "logical_devices": 2},
        {"strategy": "mirrored", "replicas": 4, "logical_devices": 4},
        {"strategy": "multi_worker_mirrored", "workers": 2},
    ],
    ids=["2 replicas", "4 replicas", "2 workers"],
)
def test_losses_are_those_of_one_device(fields: dict[str, typing.Any]) -> None:
    one, many = run(), run(**fields)
    assert many.end() == one.end() == ("FINISHED", "")
    for prefix in ("", "val_"):
        for name in LOSSES:
            values = many.metric(prefix + name)
            assert len(values) == 2
            assert values == pytest.approx(one.metric(prefix + name), rel=1e-4), prefix + name
