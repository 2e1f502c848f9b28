"""The probe: one JSON document on stdout, with TensorFlow's own reason for seeing no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.worker.post_mortem import gpu_reasons

CHECKOUT = Path(__file__).parents[3]


def probe(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "training.worker.probe"],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
        env=os.environ | variables,
    )


@pytest.mark.slow
def test_it_prints_one_document_and_says_why_there_is_no_gpu():
    """D2 and D4: the reason is captured although the shell hides it from the terminal."""
    answer = probe(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    found = json.loads(answer.stdout)
    assert answer.stderr == ""
    assert found["error"] == ""
    assert found["gpus"] == []
    assert [device["type"] for device in found["devices"]] == ["CPU"]
    assert any("cuda" in line.lower() for line in found["reasons"])
    assert not any(line.startswith(("I0000", "E0000")) for line in found["reasons"])
    assert "is_cuda_build" in found["build"]


def test_a_broken_installation_is_an_answer_too(tmp_path):
    (tmp_path / "tensorflow.py").write_text("print('noise')\nraise OSError('libfoo.so: cannot open')")
    answer = probe(PYTHONPATH=str(tmp_path))
    assert json.loads(answer.stdout)["error"] == "OSError: libfoo.so: cannot open"


def test_reasons_are_tensorflows_lines_without_prefix_each_once():
    stderr = """\
I0000 00:00:1796001252.058992    9889 cudart_stub.cc:31] Could not find cuda drivers on your machine
I0000 00:00:1796001253.910349    9889 cpu_feature_guard.cc:227] This TensorFlow binary is optimized
I0000 00:00:1796001260.801089    9889 cudart_stub.cc:31] Could not find cuda drivers on your machine
2024-03-04 12:00:01.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2256] Cannot dlopen some GPU libraries
E0000 00:00:1796001267.218016    9889 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
"""
    assert gpu_reasons(stderr) == [
        "Could not find cuda drivers on your machine",
        "Cannot dlopen some GPU libraries",
        "failed call to cuInit: INTERNAL: CUDA error",
    ]
