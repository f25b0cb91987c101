"""Where records live: one folder per sweep, one file per record, written so that a kill loses nothing.

A record is written to a temporary file beside its place, fsynced and renamed over it; readers never
see half a record, on a local disk or on a network file system with atomic rename. No locks.

    <runs>/<sweep>/sweep.json            manifest: cells, protocol, code, fingerprint
    <runs>/<sweep>/records/<key>.json    the records
    <runs>/<sweep>/logs/<key>.log        stdout and stderr of the child
"""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.record import InvalidRecord, Record, RecordKey, parse, validate


def write_atomic(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` so that any reader, at any moment, sees the old or the new whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class RecordStore:
    """The folder of one sweep."""

    root: Path

    @property
    def manifest_path(self) -> Path:
        """The sweep's own description."""
        return self.root / "sweep.json"

    def record_path(self, key: RecordKey) -> Path:
        """Where the record of ``key`` is, or will be."""
        return self.root / "records" / f"{key}.json"

    def log_path(self, key: RecordKey) -> Path:
        """Where the child that measures ``key`` writes its output."""
        return self.root / "logs" / f"{key}.log"

    def write(self, record: Record) -> Path:
        """Store a valid record, replacing an earlier one of the same key."""
        validate(record)
        path = self.record_path(record.key)
        write_atomic(path, record.to_json())
        return path

    def read(self, key: RecordKey) -> Record | None:
        """The record of ``key``; None if there is none or what is there is not a valid record."""
        try:
            return _read(self.record_path(key))
        except (OSError, InvalidRecord):
            return None

    def scan(self) -> Iterator[Record | InvalidRecord]:
        """Every file under ``records/`` in name order: a record, or the reason why it is none."""
        for path in sorted((self.root / "records").glob("*.json")):
            try:
                yield _read(path)
            except InvalidRecord as problem:
                yield problem
            except OSError as problem:
                yield InvalidRecord(f"{path.name}: {problem.strerror}")

    def records(self) -> list[Record]:
        """Every valid record, in name order."""
        return [found for found in self.scan() if isinstance(found, Record)]

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Store the sweep's description."""
        write_atomic(self.manifest_path, json.dumps(manifest, indent=1) + "\n")

    def read_manifest(self) -> dict[str, Any] | None:
        """The sweep's description, or None if there is none that can be read."""
        try:
            manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return manifest if isinstance(manifest, dict) else None


def _read(path: Path) -> Record:
    """The record in a file. Raises OSError, or InvalidRecord naming the file."""
    try:
        record = parse(path.read_text(encoding="utf-8"), path.name)
    except UnicodeDecodeError:
        raise InvalidRecord(f"{path.name}: not UTF-8 text") from None
    if str(record.key) != path.stem:
        raise InvalidRecord(f"{path.name}: is a copy of the record {record.key}")
    return record
