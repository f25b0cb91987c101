import subprocess

import suite
from suite.measure.code_version import code_version, source_digest


def make_checkout(root):
    for name in ("suite/__init__.py", "suite/measure/time.py", "runners/child.py", "runners/live.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")


def git(root, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def test_the_digest_follows_the_measuring_code_and_nothing_else(tmp_path):
    make_checkout(tmp_path)
    before = source_digest(tmp_path)
    (tmp_path / "runners/live.py").write_text("changed")
    (tmp_path / "suite/notes.txt").write_text("changed")
    assert source_digest(tmp_path) == before
    (tmp_path / "suite/measure/time.py").write_text("changed")
    changed = source_digest(tmp_path)
    assert changed != before
    (tmp_path / "suite/measure/time.py").rename(tmp_path / "suite/measure/clock.py")
    assert source_digest(tmp_path) not in (before, changed)


def test_git_is_told_where_there_is_a_checkout(tmp_path):
    make_checkout(tmp_path)
    assert code_version(tmp_path)["git"] == ""
    git(tmp_path, "init")
    git(tmp_path, "add", "suite/measure")
    git(tmp_path, "commit", "-m", "another project around an installed copy")
    assert (code_version(tmp_path)["git"], code_version(tmp_path)["dirty"]) == ("", False)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "all")
    version = code_version(tmp_path)
    assert (len(version["git"]), version["dirty"]) == (40, False)
    (tmp_path / "runners/child.py").write_text("changed")
    assert code_version(tmp_path)["dirty"] is True


def test_the_version_of_this_very_code():
    version = code_version()
    assert version.keys() == {"version", "source_digest", "git", "dirty"}
    assert version["version"] == suite.__version__
    assert version["source_digest"] == source_digest()
