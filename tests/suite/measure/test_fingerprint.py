import json
import os
from importlib import metadata

import pytest
import torch

from suite.errors import UsageError
from suite.measure import fingerprint as module
from suite.measure.fingerprint import fingerprint, stable

HERE = torch.accelerator.current_accelerator(check_available=True)


def test_the_cpu_is_told_in_plain_json():
    found = fingerprint("cpu")
    assert json.loads(json.dumps(found)) == found
    assert (found["type"], found["count"]) == ("cpu", 1)
    assert found["name"] == found["cpu"] != ""
    assert found["memory_bytes"] == found["host_memory_bytes"] > 2**28
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["torch"] == torch.__version__
    assert found["lightning"] == metadata.version("lightning")


def test_auto_is_the_accelerator_or_the_cpu():
    assert fingerprint("auto")["type"] == (HERE.type if HERE is not None else "cpu")


def test_what_is_not_here_is_refused():
    with pytest.raises(UsageError, match=r"^device\.type=nonesuch: this machine has "):
        fingerprint("nonesuch")


def test_load_is_a_warning_and_not_part_of_what_must_be_equal(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    idle = fingerprint("cpu")
    monkeypatch.setattr(os, "getloadavg", lambda: (64.0, 0.0, 0.0))
    monkeypatch.setattr(module, "_cores", lambda: idle["cores"])
    busy = fingerprint("cpu")
    assert idle["warnings"] == []
    assert busy["warnings"] == [f"the host was busy before the run: load 64 on {idle['cores']} cores"]
    assert stable(idle) == stable(busy)
    assert "torch" in stable(idle)


@pytest.mark.skipif(HERE is None, reason="no accelerator")
def test_an_accelerator_is_described():
    found = fingerprint("auto")
    assert found["count"] == torch.accelerator.device_count()
    assert found["memory_bytes"] > 2**28
    assert found["name"]
    assert json.loads(json.dumps(found)) == found
