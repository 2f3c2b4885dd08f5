"""A workload on several engines behind a router."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterable, Sequence

import simpy

from parsim.engine.clock import Clock, Moment
from parsim.engine.config import EngineConfig
from parsim.engine.engine import Engine
from parsim.engine.request import EngineRequest
from parsim.engine.run import Outcome, Workload
from parsim.router.router import Router, View
from parsim.scheduler.policy import Policy


class FleetOutcome(Outcome):
    """What came out, and where.

    Attributes:
        engines: after the run.
        replica: the engine that each request was sent to, by row.
    """

    def __init__(self, requests: int) -> None:
        super().__init__(requests)
        self.engines: list[Engine] = []
        self.replica = array("q", [-1]) * requests


def run_fleet(
    workload: Workload, configs: Sequence[EngineConfig], policy: Policy, router: Router
) -> FleetOutcome:
    """Serve a workload on one engine for each of `configs`; `router` chooses when a request arrives.

    With one engine it is `run`, to the last bit. Engines with unlike block sizes or prefix caching must not share
    prefixes: blocks are numbered by the first one's.

    Raises:
        UnfitHashes: the workload's hashes do not fit the block size.
    """
    outcome = FleetOutcome(len(workload))
    fleet = _Fleet(configs, policy, router, outcome)
    fleet.env.process(fleet.source(workload.requests(configs[0])))
    fleet.env.run_out()
    if not all(outcome.ended):
        raise AssertionError(f"{outcome.ended.count(0)} of {len(workload)} requests never ended")
    return outcome


class _Fleet:
    """The processes of a run: who arrives is routed, and the engines' state is published."""

    def __init__(
        self, configs: Sequence[EngineConfig], policy: Policy, router: Router, outcome: FleetOutcome
    ) -> None:
        self.env = Clock()
        self.router = router
        self.outcome = outcome
        self.engines = outcome.engines = [Engine(self.env, config, policy, self._done) for config in configs]
        self.views = [View() for _ in configs]
        self.in_flight = 0
        self._publishing = False

    def source(self, requests: Iterable[EngineRequest]) -> Generator[simpy.Event, None, None]:
        """Each request goes to an engine when it arrives."""
        env, now_s = self.env, 0.0
        for request in requests:
            if request.arrival_s > now_s:
                now_s = request.arrival_s
                yield Moment(env, now_s)
            if not self.router.publish_s:
                self._look()
            chosen = self.router.choose(request, self.views, now_s)
            self.outcome.replica[request.index] = chosen
            self.views[chosen].in_flight += 1
            self.in_flight += 1
            self.engines[chosen].submit(request)
            if self.router.publish_s and self.in_flight and not self._publishing:
                self._publishing = True
                env.process(self._publish())

    def _publish(self) -> Generator[simpy.Event, None, None]:
        """Every `publish_s`, while there is something to tell."""
        while self.in_flight:
            yield Moment(self.env, self.env.now + self.router.publish_s)
            self._look()
        self._publishing = False

    def _look(self) -> None:
        for view, engine in zip(self.views, self.engines, strict=True):
            view.waiting, view.running = len(engine.queue), len(engine.former.running)
            view.kv_usage, view.as_of_s = engine.kv_usage, self.env.now

    def _done(self, request: EngineRequest) -> None:
        self.views[self.outcome.replica[request.index]].in_flight -= 1
        self.in_flight -= 1
        self.outcome.record(request)
