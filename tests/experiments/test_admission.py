"""What is refused before it is queued, and how that is said."""

import socket

import pytest

from experiments import admission, capacity
from experiments.capacity import Capacity
from tests.support.stores import settings_in
from training.datasets import availability
from training.spec import RunSpec
from training.spec_rules import Severity


def spec(**fields):
    return RunSpec.from_dict({"dataset": "synthetic", "global_batch_size": 48, **fields})


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Checks a spec against machines: (CPUs, GPUs) of each node."""

    def of(run, *nodes):
        gpus = sum(count for _, count in nodes)
        ids = tuple(range(gpus)) if len(nodes) == 1 else ()
        found = Capacity(sum(cpus for cpus, _ in nodes), gpus, nodes, "ray", ids)
        monkeypatch.setattr(capacity, "of", lambda settings: found)
        return [
            (problem.field, str(problem))
            for problem in admission.check(settings_in(tmp_path), run)
            if problem.severity is Severity.ERROR
        ]

    return of


def gpus(count, **fields):
    return spec(device="gpu", strategy="mirrored", replicas=count, **fields)


@pytest.mark.parametrize(
    ("run", "nodes", "field", "words"),
    [
        (gpus(8), [(4, 1)], "replicas", ["needs 8 GPUs, this cluster has 1", "ask for fewer GPUs"]),
        (spec(cpu_threads=100), [(2, 0)], "cpu_threads", ["=100", "needs 100 CPUs, this cluster has 2"]),
        (spec(device="gpu"), [(2, 0)], "device", ["='gpu'", "needs 1 GPU, this cluster has 0", "doctor"]),
        (spec(device="gpu", gpus=[7]), [(8, 2)], "gpus", ["[7]", "names GPU 7, this cluster has 0, 1"]),
        (spec(device="gpu", gpus=[1]), [(8, 2), (8, 2)], "gpus", ["cluster of 2 machines", "leave it unset"]),
        (gpus(3), [(8, 2), (8, 2)], "replicas", ["needs", "3 GPUs on one machine"]),
        (
            spec(strategy="multi_worker_mirrored", workers=3),
            [(2, 0)],
            "workers",
            ["=3", "needs 3 CPUs, this cluster has 2"],
        ),
        (
            spec(strategy="multi_worker_mirrored", workers=2, device="gpu"),
            [(8, 1)],
            "workers",
            ["needs 2 GPUs, this cluster has 1"],
        ),
    ],
)
def test_too_large(check, run, nodes, field, words):
    [(found, message)] = check(run, *nodes)
    assert found == field
    for word in words:
        assert word in message


def test_what_fits_is_admitted(check):
    assert check(spec(), (2, 0)) == []
    assert check(spec(strategy="multi_worker_mirrored", workers=2), (2, 0)) == []
    assert check(spec(device="gpu", gpus=[1]), (8, 2)) == []


def test_a_wrong_spec_is_not_held_against_machines(check):
    found = check(
        RunSpec(dataset="synthetic", device="gpu", strategy="mirrored", replicas=3, global_batch_size=64), (2, 0)
    )
    assert [field for field, _ in found] == ["global_batch_size"]


def test_data_set_that_cannot_be_had(check, monkeypatch):
    missing = availability.Availability("mnist", False, "", "run this command to get it", False)
    monkeypatch.setattr(admission, "availability", lambda name: missing)
    [(field, message)] = check(spec(dataset="mnist"), (2, 0))
    assert field == "dataset"
    assert "is not on this machine: run this command to get it" in message


def test_machines_that_do_not_answer_only_warn(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        found = admission.check(settings_in(tmp_path, RAY_ADDRESS=address), spec())
    [problem] = found
    assert problem.severity is Severity.WARNING
    assert address in str(problem)
    assert "waits until they answer" in str(problem)


def test_more_data_than_memory_is_refused_before_it_is_queued():
    run = spec(dataset_options={"examples": 10_000_000, "shape": "1000x1000x3"})
    (problem,) = admission.check_on(Capacity(2, 0, ((2, 0),), "this machine"), run)
    assert problem.field == "dataset_options"
    assert "10,001,000 examples of 1000x1000x3 take 27,942.5 GiB" in problem.message
    assert "fewer examples" in problem.remedy


def test_a_gpu_is_not_chosen_where_it_is_a_slice():
    machine = Capacity(8, 1, ((8, 1),), "this machine")
    (problem,) = admission.check_on(machine, spec(device="gpu", gpus=[0]))
    assert str(problem) == "gpus=[0] cannot be chosen: the GPU here is a slice (MIG): leave it unset"
    assert admission.check_on(machine, spec(device="gpu")) == []
