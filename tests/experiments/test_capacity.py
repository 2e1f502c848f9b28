"""What machines have, what runs take, and which fit together."""

import os

import pytest

from experiments import capacity
from experiments.capacity import Capacity, Pool, Request
from experiments.settings import Settings
from training import hardware
from training.spec import RunSpec


def cluster(*nodes):
    gpus = sum(count for _, count in nodes)
    ids = tuple(range(gpus)) if len(nodes) == 1 else ()
    return Capacity(sum(cpus for cpus, _ in nodes), gpus, nodes, "ray", ids)


def spec(**fields):
    return RunSpec.from_dict({"dataset": "synthetic", "global_batch_size": 48, **fields})


def workers(count, **fields):
    return spec(strategy="multi_worker_mirrored", workers=count, **fields)


@pytest.mark.parametrize(
    ("run", "machines", "expected"),
    [
        (spec(cpu_threads=3), cluster((8, 0)), Request(1, 3, 0)),
        (spec(), cluster((8, 0)), Request(1, 8, 0)),
        (spec(), cluster((8, 0), (4, 0)), Request(1, 4, 0)),
        (workers(2), cluster((8, 0)), Request(2, 4, 0)),
        (workers(3), cluster((8, 0)), Request(3, 2, 0)),
        (workers(3), cluster((2, 0)), Request(3, 1, 0)),
        (workers(2), cluster((8, 0), (8, 0)), Request(2, 8, 0)),
        (workers(2, cpu_threads=1), cluster((2, 0)), Request(2, 1, 0)),
        (spec(device="gpu"), cluster((16, 4)), Request(1, 4, 1)),
        (spec(device="gpu", strategy="mirrored", replicas=3), cluster((16, 4)), Request(1, 12, 3)),
        (spec(device="gpu"), cluster((2, 8)), Request(1, 1, 1)),
        (spec(device="gpu"), cluster((64, 0), (16, 2)), Request(1, 8, 1)),
        (spec(device="gpu", cpu_threads=2), cluster((16, 4)), Request(1, 2, 1)),
        (workers(2, device="gpu"), cluster((16, 4)), Request(2, 4, 1)),
        (spec(device="gpu"), cluster((8, 0)), Request(1, 1, 1)),
    ],
)
def test_request(run, machines, expected):
    assert capacity.request(run, machines) == expected


def test_what_starts_and_watches_workers_takes_no_cpu():
    assert Request(2, 1, 0).cpus_total == 2


@pytest.mark.parametrize(
    ("wanted", "machines", "message"),
    [
        (Request(1, 1, 8), cluster((4, 1)), "needs 8 GPUs, this cluster has 1"),
        (Request(1, 100, 0), cluster((2, 0)), "needs 100 CPUs, this cluster has 2"),
        (Request(3, 1, 0), cluster((2, 0)), "needs 3 CPUs, this cluster has 2"),
        (Request(1, 1, 1), cluster((2, 0)), "needs 1 GPU, this cluster has 0"),
        (Request(1, 4, 0), cluster((2, 0), (2, 0)), "needs 4 CPUs on one machine, and no machine of this cluster"),
        (Request(2, 1, 2), cluster((8, 3), (8, 1)), "needs 2 times 1 CPU and 2 GPUs"),
        (Request(2, 1, 0), cluster((2, 0)), ""),
        (Request(2, 4, 2), cluster((8, 2), (8, 2)), ""),
    ],
)
def test_what_could_never_run_is_named(wanted, machines, message):
    found = capacity.shortage(wanted, machines)
    assert message in found
    assert bool(message) == bool(found)


def test_a_machine_is_not_called_a_cluster():
    here = Capacity(2, 0, ((2, 0),), "this machine")
    assert capacity.shortage(Request(1, 4, 0), here) == "needs 4 CPUs, this machine has 2"


def test_pool_gives_each_gpu_once():
    pool = Pool(cluster((8, 2)))
    first, second = pool.take(Request(1, 1, 1)), pool.take(Request(1, 1, 1))
    assert first
    assert second
    assert first.gpu_ids + second.gpu_ids == (0, 1)
    assert pool.take(Request(1, 1, 1)) is None
    assert pool.missing(Request(1, 1, 1)) == "1 GPU"


def test_pool_honours_named_gpus():
    pool = Pool(cluster((8, 4)))
    taken = pool.take(Request(1, 2, 2), (3, 1))
    assert taken
    assert taken.gpu_ids == (3, 1)
    assert pool.take(Request(1, 1, 1), (1,)) is None
    assert pool.missing(Request(1, 1, 1), (1,)) == "GPU 1"
    other = pool.take(Request(1, 1, 2))
    assert other
    assert other.gpu_ids == (0, 2)


def test_pool_gives_nothing_when_only_a_part_fits():
    pool = Pool(cluster((4, 0), (1, 0)))
    assert pool.take(Request(3, 2, 0)) is None
    assert pool.take(Request(2, 2, 0)), "what the first try took was given back"


def test_pool_keeps_cpu_runs_off_gpu_nodes():
    pool = Pool(cluster((4, 2), (4, 0)))
    taken = pool.take(Request(1, 4, 0))
    assert taken
    assert taken.places == ((1, 4, 0),)


def test_held_resources_are_not_taken_by_later_runs():
    pool = Pool(cluster((4, 0)))
    assert pool.take(Request(1, 3, 0))
    assert pool.take(Request(1, 2, 0)) is None
    pool.hold(Request(1, 2, 0))
    assert pool.take(Request(1, 1, 0)) is None


def test_a_run_that_waits_for_a_gpu_holds_up_no_cpu_run_beyond_its_share():
    pool = Pool(cluster((8, 1)))
    assert pool.take(Request(1, 2, 1))
    pool.hold(Request(1, 2, 1))
    assert pool.take(Request(1, 4, 0))
    assert pool.take(Request(1, 1, 0)) is None


def test_holding_a_named_gpu_leaves_the_others():
    pool = Pool(cluster((8, 2)))
    assert pool.take(Request(1, 1, 1), (0,))
    pool.hold(Request(1, 1, 1), (0,))
    taken = pool.take(Request(1, 1, 1))
    assert taken
    assert taken.gpu_ids == (1,)


def test_a_running_run_that_no_longer_fits_still_holds_what_there_is():
    pool = Pool(cluster((2, 0)))
    pool.take_running(Request(1, 8, 0), ())
    assert pool.take(Request(1, 1, 0)) is None


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({"cpu.max": "200000 100000"}, "0::/", 2),
        ({"cpu.max": "150000 100000"}, "0::/", 1),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "100000 100000"}, "0::/a/b", 1),
        ({"a/b/cpu.max": "50000 100000"}, "0::/a/b", 1),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/docker/x", 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/", None),
        ({"cpu/j/cpu.cfs_quota_us": "100000", "cpu/j/cpu.cfs_period_us": "100000"}, "4:cpu:/j\n3:memory:/j", 1),
        ({}, "0::/", None),
    ],
)
def test_container_offers_the_cpus_it_may_use(tmp_path, monkeypatch, files, own, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(192)))
    for name, content in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    (tmp_path / "own").write_text(own + "\n")
    assert capacity.usable_cpus(tmp_path / "cgroup", tmp_path / "own") == (expected or 192)


def test_affinity_limits_too():
    everything = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(everything)})
        assert capacity.usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, everything)


GPUS = ["GPU-aaa1", "GPU-aab2", "GPU-bbb3"]


def test_gpus_that_cuda_would_show(monkeypatch):
    found = tuple(hardware.Gpu(index, f"GPU-{index}", "NVIDIA H100", 80_000, 79_000, "9.0") for index in range(3))
    monkeypatch.setattr(hardware, "gpus", lambda: hardware.Gpus(found, "555.42", "12.5"))
    assert capacity.visible_gpus({}) == (0, 1, 2)
    assert capacity.visible_gpus({"CUDA_VISIBLE_DEVICES": "2,GPU-0"}) == (0, 2), "as nvidia-smi counts them"


def test_a_driver_that_fails_leaves_the_processors(monkeypatch):
    monkeypatch.setattr(hardware, "gpus", lambda: hardware.Gpus(error="GPU is lost"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = capacity.this_machine()
    assert (machine.gpus, machine.gpu_ids) == (0, ())
    assert machine.cpus >= 1


def test_a_slice_of_a_gpu_counts_as_one_that_has_no_index(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234,MIG-5678")
    machine = capacity.this_machine()
    assert (machine.gpus, machine.gpu_ids) == (1, ())
    pool, wanted = Pool(machine), Request(1, 1, 1)
    taken = pool.take(wanted)
    assert taken is not None
    assert taken.launch_gpu_ids is None, "the process keeps the CUDA_VISIBLE_DEVICES that it inherits"
    assert pool.take(wanted) is None
    without = Pool(machine).take(Request(1, 1, 0))
    assert without is not None
    assert without.launch_gpu_ids == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    assert not capacity.visible_slice()


def test_of_asks_this_machine_where_no_cluster_is_set(tmp_path):
    found = capacity.of(Settings.from_environment({"SPEEDUP_LAB_HOME": str(tmp_path)}))
    assert found == capacity.this_machine()
    assert found.cpus <= len(os.sched_getaffinity(0))
