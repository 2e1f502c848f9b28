"""TensorFlow, processors and GPUs: what is there, what TensorFlow sees of it, and why not more.

TensorFlow is asked in a process of its own (`training.worker.probe`). What CUDA it needs and for which GPUs it was
built, the wheel says itself (`tf.sysconfig.get_build_info`); nothing of that is written down here.
"""

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.doctor import software
from experiments.doctor.finding import Finding, ok, problem, warning
from experiments.settings import CHECKOUT, Settings
from training import hardware
from training.run_folder import write_atomically

TENSORFLOW_AREA, PROCESSOR_AREA, GPU_AREA = "TensorFlow", "Processor", "GPU"
PROBE_DEADLINE_S = 120
_DRIVER_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))

Probe = Mapping[str, typing.Any]
"""What `training.worker.probe` prints."""


def tensorflow(settings: Settings) -> Iterator[Finding]:
    """What TensorFlow says of itself."""
    yield tensorflow_finding(probe(settings, hardware.gpus()))


def tensorflow_finding(probed: Probe) -> Finding:
    """Judges TensorFlow by what the probe brought."""
    if probed["error"]:
        return problem(
            TENSORFLOW_AREA, "TensorFlow cannot be imported", "run `make setup`", _first_lines(probed["error"])
        )
    build = probed["build"]
    lines = [f"Keras {probed['keras']}"]
    if build.get("is_cuda_build"):
        lines += [
            f"built with CUDA {build.get('cuda_version', '?')}, cuDNN {build.get('cudnn_version', '?')}",
            f"for compute capabilities {', '.join(build.get('cuda_compute_capabilities', [])) or '?'}",
            "These are what it needs today; the guide's numbers (CUDA 10.1, cuDNN 7.6, 3.5) are of 2020.",
        ]
    else:
        lines.append("built without CUDA: it uses no NVIDIA GPU")
    return ok(TENSORFLOW_AREA, f"TensorFlow {probed['tensorflow']}", "\n".join(lines))


def processor(settings: Settings) -> Iterator[Finding]:
    """Which cores runs may use: a container's limit counts, not the host's cores."""
    del settings
    yield processor_finding(hardware.usable_cpus(), os.cpu_count() or 1, hardware.cpu_model())


def processor_finding(usable: int, of_host: int, model: str) -> Finding:
    """Says how many cores there are."""
    if usable < of_host:
        return ok(
            PROCESSOR_AREA,
            f"{usable} of the host's {of_host} processor cores",
            f"{model}\nA container's CPU limit or an affinity mask keeps the rest back; runs are offered {usable}.",
        )
    return ok(PROCESSOR_AREA, f"{usable} processor cores", model)


def gpu(settings: Settings) -> Iterator[Finding]:
    """Which GPUs there are, and what TensorFlow can do with each."""
    driver = hardware.gpus()
    probed = probe(settings, driver)
    if probed["error"]:  # the TensorFlow finding tells
        yield from driver_findings(driver)
        return
    try:
        requires = importlib.metadata.requires("tensorflow") or []
    except importlib.metadata.PackageNotFoundError:
        requires = []
    missing = software.missing_cuda_packages(requires, software.installed())
    yield from gpu_findings(driver, hardware.visible(driver.found), probed, missing)


def driver_findings(driver: hardware.Gpus, signs: Sequence[Path] = _DRIVER_SIGNS) -> Iterator[Finding]:
    """The GPUs as the driver knows them, or that it cannot be asked."""
    if driver.error and any(sign.exists() for sign in signs):
        yield problem(
            GPU_AREA,
            "there is an NVIDIA driver, but it does not answer",
            "after a driver update restart the machine; in a container, start it with --gpus all",
            driver.error,
        )
    for found in driver.found:
        yield ok(GPU_AREA, found.description, f"{found.uuid}\ndriver {driver.driver}, which runs CUDA {driver.cuda}")


def gpu_findings(
    driver: hardware.Gpus,
    shown: Sequence[hardware.Gpu],
    probed: Probe,
    missing: Sequence[str],
    visible_devices: str | None = None,
    signs: Sequence[Path] = _DRIVER_SIGNS,
) -> Iterator[Finding]:
    """Judges the GPUs.

    Args:
        driver: what NVIDIA's driver answers.
        shown: the GPUs that CUDA_VISIBLE_DEVICES leaves.
        probed: what TensorFlow answers.
        missing: the CUDA packages that `tensorflow[and-cuda]` would bring and that are not there.
        visible_devices: CUDA_VISIBLE_DEVICES; this process's own if None.
        signs: files that are there when a driver is loaded.
    """
    yield from driver_findings(driver, signs)
    build, seen = probed["build"], probed["gpus"]
    reason = "\n".join(f"TensorFlow says: {line}" for line in probed["reasons"])
    if not driver.found and not seen:
        if driver.error and not any(sign.exists() for sign in signs):
            yield ok(GPU_AREA, "no NVIDIA GPU: runs use the processor", "\n".join(filter(None, [driver.error, reason])))
        elif not driver.error:
            yield ok(GPU_AREA, "the NVIDIA driver knows no GPU: runs use the processor", reason)
        return
    if driver.found and len(shown) < len(driver.found):
        text = os.environ.get("CUDA_VISIBLE_DEVICES", "") if visible_devices is None else visible_devices
        yield warning(
            GPU_AREA,
            f"CUDA_VISIBLE_DEVICES={text} hides {len(driver.found) - len(shown)} of {len(driver.found)} GPUs",
            "unset CUDA_VISIBLE_DEVICES, unless you mean it",
        )
    if len(seen) < len(shown):
        yield problem(
            GPU_AREA,
            f"TensorFlow sees {len(seen)} of {len(shown)} GPUs",
            _remedy_for_unseen(driver, build, missing),
            reason,
        )
    for found in seen:
        yield from _capability_findings(found, build)


def _remedy_for_unseen(driver: hardware.Gpus, build: Mapping[str, typing.Any], missing: Sequence[str]) -> str:
    if not build.get("is_cuda_build"):
        return f"this TensorFlow is built without CUDA: {software.INSTALL_CUDA}"
    needed, runs = _major(build.get("cuda_version")), _major(driver.cuda)
    if needed and runs and runs < needed:
        return (
            f"update the NVIDIA driver: {driver.driver} runs CUDA up to {driver.cuda}, "
            f"and TensorFlow is built with {build['cuda_version']}"
        )
    if missing:
        return f"the driver is there, the CUDA libraries are not ({len(missing)} packages): {software.INSTALL_CUDA}"
    return "see TensorFlow's own reason; reinstall its CUDA libraries with `make setup CUDA=yes`"


def _major(version: object) -> int:
    found = re.match(r"\d+", str(version or ""))
    return int(found[0]) if found else 0


def _capability_findings(found: Mapping[str, str], build: Mapping[str, typing.Any]) -> Iterator[Finding]:
    capability, built = found["compute_capability"], build.get("cuda_compute_capabilities", [])
    name = found["name"].rpartition("/physical_device:")[2]
    if not capability or not built:
        return
    how = support(capability, built)
    if how == "ptx":
        yield warning(
            GPU_AREA,
            f"{name} has compute capability {capability}, for which TensorFlow must compile its kernels",
            "let the first run compile, which can take half an hour; set CUDA_CACHE_MAXSIZE=4294967296 so that "
            "later ones find all of it in CUDA's cache",
            f"{found['model']}; built for {', '.join(built)}. The time counts as the first step, not as training.",
        )
    elif how == "none":
        yield problem(
            GPU_AREA,
            f"{name} has compute capability {capability}, which this TensorFlow does not support",
            "use device=cpu, another GPU, or a TensorFlow built for it",
            f"{found['model']}; built for {', '.join(built)}",
        )


def support(capability: str, built: Sequence[str]) -> typing.Literal["native", "ptx", "none"]:
    """How a build runs on a GPU, by CUDA's rules of compatibility.

    Machine code (`sm_80`) runs on its own major version from its minor version up; PTX (`compute_90`) is compiled at
    first use on anything newer. `sm_90a` and the like fit that one only.

    Args:
        capability: the GPU's, such as `8.6`.
        built: the build's `cuda_compute_capabilities`.
    """
    major, minor = (int(part) for part in capability.split("."))
    how: typing.Literal["native", "ptx", "none"] = "none"
    for text in built:
        found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", text)
        if not found:
            continue
        kind, has = found[1], (int(found[2]), int(found[3]))
        if found[4]:
            fits = has == (major, minor)
        elif kind == "sm":
            fits = has[0] == major and has[1] <= minor
        else:
            fits = has <= (major, minor)
        if fits and kind == "sm":
            return "native"
        if fits:
            how = "ptx"
    return how


# --- asking TensorFlow -------------------------------------------------------------------------------------------


def probe(settings: Settings, driver: hardware.Gpus) -> Probe:
    """What TensorFlow answers in a process of its own; remembered on disk as long as nothing it depends on changes.

    Args:
        settings: the interpreter to ask, and the data folder to remember in.
        driver: part of what the answer depends on.
    """
    file = settings.home / "cache" / "tensorflow-probe.json"
    key = _key(settings, driver)
    known = _remembered(file, key)
    if known is not None:
        return known
    found = _ask(settings.python)
    # An answer that says that something is wrong is not kept: people look again after mending it.
    if not found["error"] and len(found["gpus"]) == len(hardware.visible(driver.found)):
        try:
            write_atomically(file, json.dumps({"key": key, "found": found}))
        except OSError:  # the disk finding tells that this folder cannot be written
            return found
    return found


def _key(settings: Settings, driver: hardware.Gpus) -> dict[str, typing.Any]:
    have = software.installed()
    return {
        "python": [settings.python, platform.python_version()],
        "packages": {
            name: version
            for name, version in sorted(have.items())
            if name.startswith(("tensorflow", "keras", "nvidia-")) or name in ("numpy", "protobuf")
        },
        "driver": driver.driver,
        "gpus": [found.uuid for found in driver.found],
        "variables": {
            name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
        },
    }


def _remembered(file: Path, key: dict[str, typing.Any]) -> Probe | None:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # nothing remembered yet, or a file of something else
        return None
    if isinstance(kept, dict) and kept.get("key") == key and isinstance(kept.get("found"), dict):
        return typing.cast(Probe, kept["found"])
    return None


def _ask(python: str) -> Probe:
    try:
        answer = subprocess.run(
            [python, "-m", "training.worker.probe"],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it gave no answer for {PROBE_DEADLINE_S} s", "reasons": []}
    except OSError as error:
        return {"error": f"{python} cannot be started: {error.strerror}", "reasons": []}
    try:
        return typing.cast(Probe, json.loads(answer.stdout))
    except ValueError:  # it died before it could answer
        how = f"exit code {answer.returncode}" if answer.returncode >= 0 else f"signal {-answer.returncode}"
        return {"error": f"its process ended with {how}\n{answer.stderr[-2000:]}", "reasons": []}


def _first_lines(text: str, most: int = 6) -> str:
    return "\n".join(text.strip().splitlines()[:most])
