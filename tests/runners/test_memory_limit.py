import pytest

from runners import memory_limit
from runners.memory_limit import host_memory_limit, oom_kills
from suite.errors import UsageError


def test_auto_leaves_some_of_what_is_available():
    limit = host_memory_limit("auto", "cpu")
    assert 0 < limit < memory_limit._available_bytes() * 0.9


def test_bytes_are_taken_as_given_and_only_on_the_cpu():
    assert host_memory_limit("3GiB", "cpu") == 3 * 2**30
    assert host_memory_limit("3GiB", "cuda") is None
    assert host_memory_limit("auto", "cuda") is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nonsense_is_refused(device):
    with pytest.raises(UsageError, match=r"^limits\.host_memory=much: expected bytes"):
        host_memory_limit("much", device)


@pytest.mark.parametrize(
    ("groups", "folder", "files"),
    [
        ("0::/job\n", "job", ("memory.max", "memory.current", "memory.events")),
        (
            "4:memory:/job\n0::/\n",
            "memory/job",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
        ),
    ],
)
def test_control_groups_of_both_versions_are_read(tmp_path, monkeypatch, groups, folder, files):
    (tmp_path / folder).mkdir(parents=True)
    limit, used, events = (tmp_path / folder / name for name in files)
    limit.write_text("1000000\n")
    used.write_text("400000\n")
    events.write_text("low 0\noom_kill 3\n")
    read = memory_limit._read
    membership = {"/proc/self/cgroup": groups}
    monkeypatch.setattr(memory_limit, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory_limit, "_read", lambda file: membership.get(str(file)) or read(file))
    assert oom_kills() == 3
    assert host_memory_limit("auto", "cpu") == int(600000 * 0.85)
    limit.write_text("max\n")
    assert host_memory_limit("auto", "cpu") > 1000000
