"""The environment that Ray's actors give to training processes."""

import pytest

from experiments.engines.ray_worker import training_environment
from training.run_folder import Launch, RunFolder
from training.spec import RunSpec


@pytest.mark.parametrize(
    ("device", "gpu_ids", "of_the_actor", "seen"),
    [
        ("gpu", None, "0", "0"),  # on a node of its own, where its only GPU is the node's first
        ("gpu", None, "GPU-1234", "GPU-1234"),
        ("gpu", [5, 6], "0", "6"),
        ("cpu", None, "0", ""),
    ],
)
def test_a_second_worker_sees_the_gpus_that_are_its_own(tmp_path, device, gpu_ids, of_the_actor, seen):
    spec = RunSpec(device=device, strategy="multi_worker_mirrored", workers=2)
    launch = Launch("run", "", str(tmp_path), gpu_ids=gpu_ids)
    inherited = {"CUDA_VISIBLE_DEVICES": of_the_actor, "TF_CONFIG": "of all workers"}
    environment = training_environment(RunFolder(tmp_path), spec, launch, 1, inherited)
    assert environment["CUDA_VISIBLE_DEVICES"] == seen
    assert environment["TF_CONFIG"] == "of all workers"
