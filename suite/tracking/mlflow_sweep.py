"""The runs of one sweep in MLflow: a parent, and a child for each cell.

Runs are found again by tags and never by local state, so that a resumed sweep, another machine with
the same records, and a sweep whose process was killed all come to the same runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suite.cell import digest
from suite.config.schema import STATUSES
from suite.store import RecordStore
from suite.summary import CellSummary
from suite.tracking.mlflow_cells import (
    DIGEST_TAG,
    KEY_CHARACTERS,
    MEMORY_SERIES,
    OF_THE_SWEEP,
    TAG_CHARACTERS,
    TIME_SERIES,
    CellRun,
    describe,
    text,
    unix_ms,
)
from suite.tracking.owner import is_gone, this_process, user
from suite.units import show_bytes

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

# MLflow's limits of one log_batch call.
_BATCH_PARAMS, _BATCH_ENTITIES = 100, 1000

_PAGE = 500

_PARENT_STATUS = {
    "finished": "FINISHED",
    "interrupted": "KILLED",
    "stopped": "FAILED",
    # A sweep that is sent afterwards because its process was killed before it could say how it ended.
    "running": "KILLED",
}


@dataclass
class _Child:
    """What is known of a cell's run in the store."""

    run_id: str
    run_status: str
    digest: str
    verdict: str
    params: frozenset[str]


class MlflowSweep:
    """Creates or finds the parent run of a manifest; everything raises what MLflow raises."""

    def __init__(self, client: "MlflowClient", experiment_id: str, manifest: dict[str, Any]) -> None:
        self._client, self._experiment_id = client, experiment_id
        self._manifest = manifest
        self._children: dict[str, _Child] = {}
        # Two sweeps of one name are told apart by when they began; a resumed one keeps its time.
        self.session = digest({"name": manifest["name"], "created_at": manifest.get("created_at", "")})
        self.parent_id = self._find_parent() or self._create_parent()
        self._close_abandoned()
        self.refresh()
        client.log_dict(self.parent_id, manifest, "sweep.json")

    def refresh(self) -> None:
        """Read the cells' runs again; close those that a killed process or a lost answer left open."""
        self._children = {}
        for run in self._search(f"tags.mlflow.parentRunId = '{self.parent_id}'"):
            cell = run.data.tags.get("suite.cell", "")
            if cell in self._children:
                self._client.delete_run(run.info.run_id)
                continue
            if run.info.status == "RUNNING":
                self._client.set_terminated(run.info.run_id, "KILLED")
            self._children[cell] = _Child(
                run_id=run.info.run_id,
                run_status="KILLED" if run.info.status == "RUNNING" else run.info.status,
                digest=run.data.tags.get(DIGEST_TAG, ""),
                verdict=run.data.tags.get("suite.status", ""),
                params=frozenset(run.data.params),
            )

    def send(self, summary: CellSummary, store: RecordStore) -> None:
        """Create or update the run of one cell, unless it already shows exactly this.

        The status comes last: a run whose digest and status are right is complete.
        """
        content = describe(summary, store)
        child = self._children.get(content.cell)
        if child and (child.digest, child.run_status) == (content.digest, content.status):
            return
        if child and self._contradicts(child, content):
            # MLflow cannot take back a point: this run would draw both measurements, and of two that are
            # equally new it would show the higher.
            self._client.delete_run(child.run_id)
            child = None
        tags = content.tags
        if child is None:
            child = self._create_child(content)
            tags = {DIGEST_TAG: content.digest}
        for path in content.records:
            self._client.log_artifact(child.run_id, str(path), "records")
        for path in content.logs:
            self._client.log_artifact(child.run_id, str(path), "logs")
        self._log(child, content, tags)
        self._client.set_terminated(child.run_id, content.status, content.end_ms or None)
        child.run_status, child.digest, child.verdict = content.status, content.digest, summary.status

    def finish(self, manifest: dict[str, Any], report_dir: Path | None, unsent: int) -> None:
        """End the parent run with the manifest's state, its report and the count of verdicts."""
        from mlflow.entities import RunTag

        self._manifest = manifest
        tags = self._parent_tags(unsent)
        self._client.log_batch(self.parent_id, tags=[RunTag(k, v) for k, v in tags.items()])
        self._client.log_dict(self.parent_id, manifest, "sweep.json")
        if report_dir is not None and report_dir.is_dir():
            self._client.log_artifacts(self.parent_id, str(report_dir), "report")
        # A sweep that is sent long after it ended did not last until now.
        ended_ms = unix_ms(manifest.get("updated_at", ""))
        self._client.set_terminated(self.parent_id, _PARENT_STATUS[manifest["state"]], ended_ms or None)

    def _create_child(self, content: CellRun) -> _Child:
        tags = {
            **{name: value for name, value in content.tags.items() if name != DIGEST_TAG},
            "mlflow.parentRunId": self.parent_id,
            "mlflow.user": user(),
            "suite.sweep": text(self._manifest["name"], TAG_CHARACTERS),
            "suite.session": self.session,
        }
        run = self._client.create_run(
            self._experiment_id,
            start_time=content.start_ms or None,
            tags=tags,
            run_name=content.name,
        )
        child = _Child(run.info.run_id, "RUNNING", "", "", frozenset())
        self._children[content.cell] = child
        return child

    def _log(self, child: _Child, content: CellRun, changed: dict[str, str]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        # Parameters cannot be changed, and those of a cell never need to be.
        params = [Param(k, v) for k, v in content.params.items() if k not in child.params]
        points = [Metric(p.key, p.value, p.time_ms, p.step) for p in content.points]
        tags = [RunTag(k, v) for k, v in changed.items()]
        while len(params) > _BATCH_PARAMS:
            self._client.log_batch(child.run_id, params=params[:_BATCH_PARAMS])
            params = params[_BATCH_PARAMS:]
        while len(points) + len(params) + len(tags) > _BATCH_ENTITIES:
            self._client.log_batch(child.run_id, metrics=points[:_BATCH_ENTITIES])
            points = points[_BATCH_ENTITIES:]
        self._client.log_batch(child.run_id, metrics=points, params=params, tags=tags)
        child.params = frozenset(content.params) | child.params

    def _contradicts(self, child: _Child, content: CellRun) -> bool:
        """Whether the run shows a point that is not what was measured any more."""
        new = {(p.key, p.step, p.value) for p in content.points}
        return any(
            (name, point.step, point.value) not in new
            for name in (MEMORY_SERIES, TIME_SERIES)
            for point in self._client.get_metric_history(child.run_id, name)
        ) or any(
            shown.timestamp >= point.time_ms and shown.value != point.value
            for point in content.points
            if point.key in OF_THE_SWEEP
            for shown in self._client.get_metric_history(child.run_id, point.key)
        )

    def _find_parent(self) -> str | None:
        found = list(
            self._search(f"tags.`suite.session` = '{self.session}' AND tags.`suite.kind` = 'sweep'")
        )
        if not found:
            return None
        from mlflow.entities import RunTag

        run_id: str = min(found, key=lambda run: run.info.start_time).info.run_id
        self._client.update_run(run_id, "RUNNING")
        tags = self._parent_tags(0)
        self._client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])
        return run_id

    def _create_parent(self) -> str:
        run = self._client.create_run(
            self._experiment_id,
            start_time=unix_ms(self._manifest.get("created_at", "")) or None,
            tags=self._parent_tags(0),
            run_name=text(self._manifest["name"], KEY_CHARACTERS),
        )
        return str(run.info.run_id)

    def _parent_tags(self, unsent: int) -> dict[str, str]:
        manifest = self._manifest
        code = manifest.get("code", {})
        tags = {
            "suite.kind": "sweep",
            "suite.sweep": manifest["name"],
            "suite.session": self.session,
            "suite.process": this_process(),
            "suite.state": manifest.get("state", "running"),
            "suite.budget_bytes": manifest.get("budget_bytes"),
            "suite.reference": manifest.get("reference"),
            "suite.version": code.get("version"),
            "mlflow.user": user(),
            "mlflow.source.type": "LOCAL",
            "mlflow.source.name": manifest.get("command"),
            "mlflow.source.git.commit": code.get("git"),
            "mlflow.note.content": self._note(unsent),
        }
        return {k: text(v, TAG_CHARACTERS) for k, v in tags.items() if v not in (None, "")}

    def _note(self, unsent: int) -> str:
        cells = [cell["id"] for cell in self._manifest.get("cells", ())]
        verdicts = [child.verdict for child in self._children.values() if child.verdict]
        budget = self._manifest.get("budget_bytes")
        limit = f"memory budget {show_bytes(budget)}" if budget else "no memory budget"
        lines = [f"{len(cells)} cells, {limit}, {self._manifest.get('state', 'running')}."]
        counts = [f"| {s} | {verdicts.count(s)} |" for s in STATUSES if s in verdicts]
        if counts:
            lines += ["", "| verdict | cells |", "|---|---|", *counts]
        if unsent:
            lines += [
                "",
                f"{unsent} measured cells are not here yet: `python -m analysis sync` sends them.",
            ]
        return "\n".join(lines)

    def _search(self, condition: str) -> "Iterator[Run]":
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id],
                condition,
                max_results=_PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return

    def _close_abandoned(self) -> None:
        """End what processes of this machine that are gone have left RUNNING, in whatever sweep."""
        for run in list(self._search("tags.`suite.kind` = 'sweep' AND attributes.status = 'RUNNING'")):
            if run.info.run_id == self.parent_id or not is_gone(run.data.tags.get("suite.process", "")):
                continue
            condition = f"tags.mlflow.parentRunId = '{run.info.run_id}' AND attributes.status = 'RUNNING'"
            for child in list(self._search(condition)):
                self._client.set_terminated(child.info.run_id, "KILLED")
            self._client.set_terminated(run.info.run_id, "KILLED")
