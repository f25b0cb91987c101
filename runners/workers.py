"""Long-lived children for passes that run nothing: predictions need no process of their own."""

from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from runners.forkserver import ForkServer
from runners.job import Job
from runners.pool import Lease
from runners.supervise import Child, Sentinel
from suite.record import Record


class _Worker:
    """One child and the pipe to it."""

    def __init__(self, server: ForkServer) -> None:
        self.process: ForkServerProcess
        self.pipe: Connection
        self.process, self.pipe = server.fork_worker(1)
        self.alive = True


class Assigned(Child):
    """A job that a worker does; the worker goes on to the next, unless it dies of this one."""

    def __init__(self, job: Job, worker: _Worker) -> None:
        super().__init__(job, worker.process)
        self._worker = worker
        worker.pipe.send(job)

    @property
    def sentinel(self) -> Sentinel:
        """The pipe: there is an answer in it, or its other end is gone."""
        return self._worker.pipe

    def conclude(self) -> Record:
        """The stored record; of a worker that has died, what is known of its end."""
        try:
            self._worker.pipe.recv_bytes()
        except (EOFError, ConnectionResetError):
            self._worker.alive = False
            self._worker.pipe.close()
            return super().conclude()
        found = self.job.store.read(self.job.key)
        assert found is not None, "the worker has written it before it answered"
        return found


class Workers:
    """A worker for each lease, started when there is a first job for it."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._workers: dict[Lease, _Worker] = {}

    def start(self, job: Job, lease: Lease) -> Child:
        """Hand the job to the lease's worker."""
        worker = self._workers.get(lease)
        if worker is None or not worker.alive:
            worker = self._workers[lease] = _Worker(self._server)
        log = job.store.log_path(job.key)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        return Assigned(job, worker)

    def stop(self) -> None:
        """Let every worker end."""
        for worker in self._workers.values():
            if worker.alive:
                worker.pipe.close()
                worker.process.join()
