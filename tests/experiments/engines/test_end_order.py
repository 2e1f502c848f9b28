"""The order in which processes end, also of those that end at nearly the same time or that nobody reaps."""

import errno
import os
import subprocess
import time

from experiments.engines.end_order import EndOrder


def _wait_for(order: EndOrder, keys: list[int]) -> None:
    deadline = time.monotonic() + 10
    while order.ended() != keys:
        assert time.monotonic() < deadline, order.ended()
        time.sleep(0.005)


def test_order_of_ends_without_anyone_who_reaps_or_looks():
    processes = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    order = EndOrder()
    for key, process in enumerate(processes):
        order.watch(key, process.pid)
        order.watch(key, process.pid)
    assert order.ended() == []
    try:
        for key in (2, 0, 1):
            processes[key].kill()
            time.sleep(0.02)
        _wait_for(order, [2, 0, 1])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_nothing_is_said_where_the_kernel_has_no_such_call(monkeypatch):
    def refuse(pid):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    ended = subprocess.Popen(["true"])
    ended.wait()
    order = EndOrder()
    order.watch(0, ended.pid)
    monkeypatch.setattr(os, "pidfd_open", refuse)
    order.watch(1, os.getpid())
    assert order.ended() == [], "one that is not seen may have ended before"


def test_process_that_had_ended_before():
    reaped, left = subprocess.Popen(["true"]), subprocess.Popen(["true"])
    reaped.wait()
    order = EndOrder()
    order.watch(0, reaped.pid)
    assert order.ended() == [0]
    order.watch(1, left.pid)
    _wait_for(order, [0, 1])
    left.wait()
