"""Whether a run may be queued: its spec, its data set, and the machines it is for."""

from collections.abc import Callable, Iterator

from experiments import capacity
from experiments.capacity import Capacity
from experiments.settings import Settings
from training import spec as spec_checks
from training.datasets import synthetic
from training.datasets.availability import availability
from training.spec import RunSpec
from training.spec_rules import Problem, Severity


def check(settings: Settings, spec: RunSpec) -> list[Problem]:
    """Everything that stands against a run, or that its owner should know.

    Args:
        settings: where it would run.
        spec: what would run.

    Returns:
        Errors refuse the run; warnings do not. Machines that cannot be asked are a warning: the queue takes the run,
        and it waits until they answer.
    """
    return _check(lambda: capacity.of(settings), spec)


def check_on(machines: Capacity, spec: RunSpec) -> list[Problem]:
    """As `check`, for machines that are known already."""
    return _check(lambda: machines, spec)


def _check(machines: Callable[[], Capacity], spec: RunSpec) -> list[Problem]:
    found = spec_checks.problems(spec)
    # A spec that is wrong by itself says nothing sensible about machines.
    if any(problem.severity is Severity.ERROR for problem in found):
        return found
    return [*found, *_dataset(spec), *_machines(machines, spec)]


def _dataset(spec: RunSpec) -> Iterator[Problem]:
    found = availability(spec.dataset)
    if not found.here and not found.downloadable:
        yield Problem("dataset", spec.dataset, "is not on this machine", found.how_to_get)
    if spec.dataset == synthetic.NAME and (message := synthetic.too_large(spec.dataset_options)):
        yield Problem("dataset_options", dict(spec.dataset_options), f"asks for too much: {message}", synthetic.LESS)


def _machines(ask: Callable[[], Capacity], spec: RunSpec) -> Iterator[Problem]:
    # Only here, and not in the capacity's own module, is an engine that does not answer no reason to stop.
    from experiments.engines.base import EngineError

    try:
        machines = ask()
    except EngineError as error:
        yield Problem(
            "device",
            spec.device,
            f"could not be checked against the machines ({error})",
            "the run waits until they answer",
            Severity.WARNING,
        )
        return
    yield from _chosen_gpus(spec, machines)
    wanted = capacity.request(spec, machines)
    if message := capacity.shortage(wanted, machines):
        yield _too_large(spec, machines, wanted, message)


def _chosen_gpus(spec: RunSpec, machines: Capacity) -> Iterator[Problem]:
    if spec.gpus is None:
        return
    if len(machines.nodes) > 1:
        yield Problem(
            "gpus",
            list(spec.gpus),
            f"cannot be chosen on a cluster of {len(machines.nodes)} machines",
            "leave it unset",
        )
        return
    if machines.gpus and not machines.gpu_ids:
        yield Problem("gpus", list(spec.gpus), "cannot be chosen: the GPU here is a slice (MIG)", "leave it unset")
        return
    unknown = [gpu for gpu in spec.gpus if gpu not in machines.gpu_ids]
    if unknown and machines.gpus:
        there = ", ".join(str(gpu) for gpu in machines.gpu_ids)
        names = ", ".join(str(gpu) for gpu in unknown)
        yield Problem("gpus", list(spec.gpus), f"names GPU {names}, {machines.where} has {there}", "name one of those")


def _too_large(spec: RunSpec, machines: Capacity, wanted: capacity.Request, message: str) -> Problem:
    if wanted.gpus_total > machines.gpus == 0:
        remedy = "choose device=cpu; `python -m experiments doctor` says why no GPU is seen"
        return Problem("device", spec.device, message, remedy)
    most_on_a_node = max((gpus for _, gpus in machines.nodes), default=0)
    if wanted.gpus_total > machines.gpus or wanted.gpus_per_worker > most_on_a_node:
        field, value = ("replicas", spec.replicas) if spec.workers == 1 else ("workers", spec.workers)
        return Problem(field, value, message, "ask for fewer GPUs")
    if spec.cpu_threads is not None:
        return Problem("cpu_threads", spec.cpu_threads, message, "give fewer threads, or leave it unset")
    return Problem("workers", spec.workers, message, "choose fewer workers: each needs a core of its own")
