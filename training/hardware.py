"""Processors and GPUs of this machine, as far as this process may use them. Imports no TensorFlow."""

import os
import platform
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Gpu:
    """One physical GPU. `index` is nvidia-smi's (PCI bus order); memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    free_mib: int
    compute_capability: str

    @property
    def description(self) -> str:
        """For people: `GPU 5: NVIDIA H100, 81,559 MiB (80,000 free), compute capability 9.0`."""
        return (
            f"GPU {self.index}: {self.name}, {self.memory_mib:,} MiB ({self.free_mib:,} free), "
            f"compute capability {self.compute_capability}"
        )


@dataclass(frozen=True)
class Gpus:
    """What NVIDIA's driver answers.

    Attributes:
        found: every GPU of the machine, visible to this process or not.
        driver: the driver's version; empty without a driver.
        cuda: the highest CUDA version the driver can run, such as `12.8`.
        error: why the driver could not be asked; empty when it could.
    """

    found: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    error: str = ""


def gpus() -> Gpus:
    """Asks NVIDIA's driver through nvidia-ml-py."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(error=str(error))
    try:
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        return Gpus(
            tuple(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())),
            str(pynvml.nvmlSystemGetDriverVersion()),
            f"{cuda // 1000}.{cuda % 1000 // 10}",
        )
    except pynvml.NVMLError as error:
        return Gpus(error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _gpu(pynvml: typing.Any, index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index,
        str(pynvml.nvmlDeviceGetUUID(handle)),
        str(pynvml.nvmlDeviceGetName(handle)),
        int(memory.total) >> 20,
        int(memory.free) >> 20,
        f"{major}.{minor}",
    )


def visible(found: Sequence[Gpu], environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that CUDA shows a process, in CUDA's order: the first is TensorFlow's `GPU:0`.

    CUDA's rule for CUDA_VISIBLE_DEVICES: indices or unique beginnings of UUIDs; the list ends at the first entry that
    names no GPU; one named twice hides all. Indices are nvidia-smi's if CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    text = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(found)
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in text.split(",")):
        if entry.isascii() and entry.isdecimal():
            matching = [gpu for gpu in found if gpu.index == int(entry[:9])]
        else:
            matching = [gpu for gpu in found if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
        if len(matching) != 1:
            break
        if matching[0] in chosen:
            return []
        chosen.append(matching[0])
    return chosen


def gpu_ids(ordinals: Sequence[int], shown: Sequence[Gpu], environ: Mapping[str, str] | None = None) -> str:
    """Which physical GPU is which TensorFlow device, one a line: `GPU:0 = physical 5 (GPU-<uuid>)`.

    Args:
        ordinals: CUDA's numbers of the devices TensorFlow uses, in TensorFlow's order.
        shown: the GPUs CUDA shows this process, in CUDA's order (`visible`).
        environ: where CUDA_VISIBLE_DEVICES stands; the process's own if None.
    """
    asked = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES", "").split(",")
    lines = []
    for place, ordinal in enumerate(ordinals):
        if ordinal < len(shown):
            physical = f"physical {shown[ordinal].index} ({shown[ordinal].uuid})"
        else:
            # A slice (MIG) is not in the driver's list: then what was asked for is all there is to say.
            physical = (asked[ordinal].strip() if ordinal < len(asked) else "") or "unknown"
        lines.append(f"GPU:{place} = {physical}")
    return "\n".join(lines)


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the kernel gives it, or its architecture where it gives none (ARM)."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:  # no Linux
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def usable_cpus(cgroups: Path = CGROUPS, own_cgroup: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may use: of its affinity mask and its cgroup's CPU quota the smaller, at least 1.

    `os.cpu_count()` gives the host's cores, also in a container that may use two of 192.
    """
    quotas = [quota for folder in own_groups(cgroups, own_cgroup) if (quota := _quota(folder)) is not None]
    return max(1, int(min([len(os.sched_getaffinity(0)), *quotas])))


def own_groups(cgroups: Path = CGROUPS, own_cgroup: Path = Path("/proc/self/cgroup")) -> Iterator[Path]:
    """Folders that may limit this process's CPU time: its group and all above it, in version 2 and in version 1."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:  # no Linux
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / "cpu" if controllers else cgroups
        group = root / path.lstrip("/")
        while group != root and root in group.parents:
            yield group
            group = group.parent
    # Inside a container the group's own path is often not mounted; its limits then stand at the root.
    yield cgroups
    yield cgroups / "cpu"


def _quota(folder: Path) -> float | None:
    """Cores' worth of time that a cgroup may use; None where it is not limited."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text().strip() for name in names).split()
        except (OSError, ValueError):  # the other version's files, or no limit at this level
            continue
        if quota.isdecimal() and int(quota) > 0 and int(period) > 0:
            return int(quota) / int(period)
    return None
