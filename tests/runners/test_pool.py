import pytest

from runners.pool import leases
from suite.errors import UsageError

CUDA = {"type": "cuda", "count": 4, "rocm": ""}


def environments(*arguments):
    return [dict(lease.environment) for lease in leases(*arguments)]


def test_one_place_on_the_cpu_whatever_there_is():
    assert environments(CUDA, "cpu", "all") == [{}]


def test_one_place_per_device(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environments(CUDA, "cuda", "all") == [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(4)]
    assert environments(CUDA, "cuda", "0,2") == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "2"},
    ]


def test_numbers_count_among_the_devices_the_scheduler_shows(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc")
    two = {**CUDA, "count": 2}
    assert environments(two, "cuda", "1") == [{"CUDA_VISIBLE_DEVICES": "GPU-abc"}]


def test_each_vendor_has_its_variable(monkeypatch):
    for name in ("HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    assert environments({**CUDA, "rocm": "6.4"}, "cuda", "1") == [{"HIP_VISIBLE_DEVICES": "1"}]
    assert environments({"type": "xpu", "count": 1, "rocm": ""}, "xpu", "all") == [
        {"ZE_AFFINITY_MASK": "0"}
    ]
    assert environments({"type": "mps", "count": 1, "rocm": ""}, "mps", "all") == [{}]


@pytest.mark.parametrize("ids", ["4", "0,0", "-1", "one", "", "0,"])
def test_bad_ids_are_refused_in_one_line(ids):
    with pytest.raises(UsageError, match=r"^device\.ids=.*: all, or numbers from 0 to 3"):
        leases(CUDA, "cuda", ids)


def test_an_absent_device_is_refused():
    with pytest.raises(UsageError, match=r"^device\.type=xpu: this machine has cuda"):
        leases(CUDA, "xpu", "all")
