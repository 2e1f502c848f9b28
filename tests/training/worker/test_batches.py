"""Which examples a replica gets, in a process of its own where TensorFlow must run."""

import typing

import numpy as np

from tests.support.forked import run_python_forked


def plan(script: str) -> typing.Any:
    return run_python_forked(
        f"""
import json, numpy as np
from training.worker.batches import Plan
{script}
"""
    )


def test_an_epoch_takes_each_example_at_most_once_and_another_remainder_is_left_out_each_time():
    orders = plan(
        "plan = Plan(seed=3, batch=4, replicas=2, steps=5)\n"
        "print(json.dumps([plan.order(epoch, 43).tolist() for epoch in range(3)]))"
    )
    arrays = [np.array(order) for order in orders]
    assert all(array.shape == (5, 2, 4) for array in arrays)
    assert all(len(set(array.ravel())) == 40 for array in arrays)
    left_out = [frozenset(range(43)) - set(array.ravel()) for array in arrays]
    assert len(set(left_out)) == 3


def test_any_number_of_replicas_trains_on_the_same_global_batches():
    two, four = plan(
        "orders = [Plan(seed=3, batch=8 // r, replicas=r, steps=5).order(1, 43) for r in (2, 4)]\n"
        "print(json.dumps([order.reshape(5, 8).tolist() for order in orders]))"
    )
    assert two == four
