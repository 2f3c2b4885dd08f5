"""Who runs the points: processes on this machine, or an existing Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from parsim.engine.scoring_cost import ScoringCost
from parsim.errors import UserError
from parsim.pool import in_processes
from parsim.progress import Bar
from parsim.sweep.measure import Outcome, measure_file
from parsim.sweep.point import Point
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload

ExecutorName = Literal["local", "ray"]
UNGUARDED = ", unguarded"
"""How a policy of the grid is called whose guard was taken away."""


@dataclass(frozen=True)
class Job:
    """A point with its key and the trace it runs on."""

    key: str
    point: Point
    path: Path
    fingerprint: str
    slo: dict[str, float]
    scoring: ScoringCost | None

    def run(self) -> tuple[str, Outcome]:
        return self.key, measure_file(self.path, self.fingerprint, self.point, self.slo, self.scoring)


@dataclass(frozen=True)
class Runner:
    """Runs points on the traces of a workload and keeps their outcomes; what is kept already is not run again."""

    workload: Workload
    store: Store
    slo: dict[str, float]
    scoring: ScoringCost | None = None
    executor: ExecutorName = "local"
    jobs: int | None = None
    bar: Bar = field(default_factory=Bar)

    def job(self, point: Point) -> Job:
        path, fingerprint = self.workload.file(point.seed, point.requests)
        key = point.key(fingerprint, self.slo, self.scoring)
        return Job(key, point, path, fingerprint, self.slo, self.scoring)

    def run(self, points: Sequence[Point], title: str) -> list[Outcome]:
        """The outcomes of `points`, in their order; finished ones are kept as they come.

        A guard that promoted nobody changed nothing: the same order without a guard is then not run once more.
        """
        jobs = [self.job(point) for point in points]
        missing = self._missing(jobs)
        total = len({job.key for job in jobs})
        self.bar.begin(title, total, total - len(missing))
        guarded = {
            _unguarded(job): job for job in jobs if job.point.policy.starvation_threshold_s is not None
        }
        waiting = [job for job in missing if _is_unguarded(job) and _unguarded(job) in guarded]
        self._finish([job for job in missing if job not in waiting])
        again = []
        for job in waiting:
            outcome = self.store.get(guarded[_unguarded(job)].key)
            if outcome.metrics["promoted"] == 0:
                self.store.put(job.key, outcome)
                self.bar.advance()
            else:
                again.append(job)
        self._finish(again)
        return [self.store.get(job.key) for job in jobs]

    def _finish(self, jobs: Sequence[Job]) -> None:
        for key, outcome in self._outcomes(jobs):
            self.store.put(key, outcome)
            self.bar.advance()

    def missing(self, points: Sequence[Point]) -> int:
        """How many of `points` have not been run yet."""
        return len(self._missing([self.job(point) for point in points]))

    def _missing(self, jobs: Sequence[Job]) -> list[Job]:
        return list({job.key: job for job in jobs if job.key not in self.store}.values())

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Outcome]]:
        if not jobs:
            return iter(())
        return _ray(jobs) if self.executor == "ray" else _local(jobs, self.jobs)


def _is_unguarded(job: Job) -> bool:
    policy = job.point.policy
    return policy.ranked and policy.starvation_threshold_s is None


def _unguarded(job: Job) -> str:
    """The key of the same run without its guard, whatever it is called for display (`oracle, unguarded`)."""
    name = job.point.policy.name.removesuffix(UNGUARDED)
    policy = replace(job.point.policy, name=name, starvation_threshold_s=None)
    return replace(job.point, policy=policy, changed={}).key(job.fingerprint, job.slo, job.scoring)


def _local(jobs: Sequence[Job], workers: int | None) -> Iterator[tuple[str, Outcome]]:
    count = min(workers or os.cpu_count() or 1, len(jobs))
    if count == 1:
        yield from map(Job.run, jobs)
        return
    yield from in_processes(Job.run, jobs, count)


def _ray(jobs: Sequence[Job]) -> Iterator[tuple[str, Outcome]]:
    try:
        import ray
    except ImportError as error:
        raise UserError("executor ray: Ray is not installed; pip install 'parsim[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except ConnectionError as error:
            raise UserError(
                "executor ray: no running Ray cluster found; start one (ray start --head) or set RAY_ADDRESS"
            ) from error
    from parsim.sweep.measure import measure
    from parsim.traces import read_trace

    remote = ray.remote(measure)
    traces = {path: ray.put(read_trace(path)) for path in {job.path for job in jobs}}
    waiting = {remote.remote(traces[j.path], j.point, j.slo, j.scoring): j.key for j in jobs}
    while waiting:
        done, _ = ray.wait(list(waiting), num_returns=1)
        for reference in done:
            yield waiting.pop(reference), ray.get(reference)
