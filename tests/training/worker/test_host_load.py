"""What the kernel counts, in percent of what the host has."""

import os

import pytest

from training.names import Metric
from training.worker.host_load import HostLoad

TICKS = os.sysconf("SC_CLK_TCK")


def stat(path, user=0.0, idle=0.0, steal=0.0, running=1, cpus=4, guest=0.0):
    """Writes the kernel's counters, in seconds; nice, system, irq and softirq have a tenth of `user` each."""
    tenth = user / 10
    seconds = [user * 6 / 10, tenth, tenth, idle / 2, idle / 2, tenth, tenth, steal, guest, 0]
    fields = " ".join(str(round(value * TICKS)) for value in seconds)
    path.write_text(f"cpu  {fields}\n" + "".join(f"cpu{i} 1 2 3\n" for i in range(cpus)) + f"procs_running {running}\n")


@pytest.fixture
def load(tmp_path):
    """A load over made-up files: `stat`, and `cpu.stat` of two control groups, one above the other."""
    now = [100.0]
    (tmp_path / "inner").mkdir()

    def make():
        made = HostLoad(lambda: now[0], tmp_path / "stat", [tmp_path / "inner", tmp_path, tmp_path / "inner"])
        now[0] += 10.0
        return made

    stat(tmp_path / "stat", user=1_000, idle=500, steal=7)
    return make


def test_use_outside_the_run_and_steal(load, tmp_path):
    host = load()
    # 40 CPU seconds passed: 20 busy, of which 12 the run's; 18 idle, 2 stolen.
    stat(tmp_path / "stat", user=1_020, idle=518, steal=9, running=7, guest=15)
    assert host.since_last(12.0) == pytest.approx(
        {Metric.OTHERS_CPU: 20.0, Metric.CPU_STEAL: 5.0, Metric.RUNNABLE_THREADS: 6 / 4}
    )
    # Only since the last reading; and clocks of different grain never make use negative.
    stat(tmp_path / "stat", user=1_030, idle=548, steal=9, running=1)
    assert host.since_last(10.2) == {Metric.OTHERS_CPU: 0.0, Metric.CPU_STEAL: 0.0, Metric.RUNNABLE_THREADS: 0.0}


def test_without_any_time_passed_there_is_no_share(load):
    assert load().since_last(0.0) == {Metric.RUNNABLE_THREADS: 0.0}


@pytest.mark.parametrize(("name", "unit"), [("throttled_usec", 1e6), ("throttled_time", 1e9)], ids=["v2", "v1"])
def test_throttled_by_the_quota_of_any_level(load, tmp_path, name, unit):
    def throttled(path, seconds):
        path.write_text(f"nr_periods 5\nnr_throttled 3\n{name} {round(seconds * unit)}\n")

    throttled(tmp_path / "inner" / "cpu.stat", 50.0)
    throttled(tmp_path / "cpu.stat", 1.0)
    host = load()
    throttled(tmp_path / "cpu.stat", 3.5)
    assert host.since_last(0.0)[Metric.CPU_THROTTLED] == pytest.approx(25.0)


def test_a_group_that_counts_no_throttling_gives_none(load, tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 5\n")
    assert Metric.CPU_THROTTLED not in load().since_last(0.0)


def test_this_host():
    assert set(HostLoad(iter([0.0, 1.0]).__next__).since_last(0.0)) >= {Metric.RUNNABLE_THREADS}
