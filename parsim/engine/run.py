"""One run: a workload on one engine, from the first arrival to the last token."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import simpy

from parsim.engine.clock import Clock, Moment
from parsim.engine.config import EngineConfig
from parsim.engine.engine import Engine, EngineScorer, StepObserver
from parsim.engine.learning import LearningScorer
from parsim.engine.prefix_ids import PrefixIds
from parsim.engine.request import NEVER, EngineRequest
from parsim.engine.scorer import VirtualScorer
from parsim.engine.scoring_cost import ScoringCost
from parsim.scheduler.judge import Judge
from parsim.scheduler.policy import Policy

if TYPE_CHECKING:
    import polars as pl

    Column = Sequence[Any] | pl.Series

TIMES = ("first_scheduled_s", "first_token_s", "finish_s", "scored_s")
COUNTS = ("cached_tokens", "preemptions", "recomputed_tokens")


_AT_ONCE = 8192
"""Requests for which the columns' values are at hand at one time."""


@dataclass(frozen=True)
class Workload:
    """What is asked of an engine: columns with one entry a request, in order of arrival.

    Attributes:
        request_id, arrival_s, prompt_tokens, output_tokens: see the trace's schema.
        score: what a ranked policy goes by; None for all without one.
        prefix_hashes: one hash for each leading block of `hash_block_size` tokens of the prompt and, as far as others
            may ask for it again, the response; None if nothing is shared.
        stops: whether the response ends by itself, not at its `max_tokens`; None: none does.
    """

    request_id: Column
    arrival_s: Column
    prompt_tokens: Column
    output_tokens: Column
    score: Column | None = None
    prefix_hashes: Column | None = None
    hash_block_size: int | None = None
    stops: Column | None = None

    def __len__(self) -> int:
        return len(self.request_id)

    def requests(self, config: EngineConfig, scored_later: bool = False) -> Iterator[EngineRequest]:
        """The requests one after the other, made as they are asked for.

        `scored_later`: their scores are what a scorer will find.

        Raises:
            UnfitHashes: the hashes do not fit the block size.
        """
        ids = None
        if (
            config.enable_prefix_caching
            and self.hash_block_size is not None
            and self.prefix_hashes is not None
        ):
            ids = PrefixIds(config.block_size, self.hash_block_size)
        columns = (self.request_id, self.arrival_s, self.prompt_tokens, self.output_tokens)

        def some(first: int) -> Iterator[EngineRequest]:
            rows = slice(first, min(first + _AT_ONCE, len(self)))
            score = repeat(None) if self.score is None else _values(self.score[rows])
            prefixes: Iterable[Sequence[int]] = repeat(())
            if ids is not None and self.prefix_hashes is not None:
                prefixes = (ids.of(hashes or ()) for hashes in _values(self.prefix_hashes[rows]))
            stops = repeat(False) if self.stops is None else _values(self.stops[rows])
            numbers = range(rows.start, rows.stop)
            return map(
                EngineRequest, numbers, *(_values(column[rows]) for column in columns), score, prefixes, stops
            )

        requests = chain.from_iterable(map(some, range(0, len(self), _AT_ONCE)))
        return map(_to_be_scored, requests) if scored_later else requests


class Outcome:
    """What came out, in columns: a finished request leaves 60 bytes.

    Attributes:
        engine: after the run; its clock, steps and sums.
        scorer: the scorer beside it, if there was one.
        cpu_s: CPU seconds of the run.
        promoted: whether the starvation guard moved the request ahead, by row.
        ended: whether the request is out of the engine, by row.
        rejected: why a request was refused or withdrawn, by row; the others are not in it.
    """

    engine: Engine
    scorer: EngineScorer | None = None
    cpu_s: float = 0.0

    def __init__(self, requests: int) -> None:
        self.times = {name: array("d", [NEVER]) * requests for name in TIMES}
        self.counts = {name: array("q", [0]) * requests for name in COUNTS}
        self.promoted = bytearray(requests)
        self.rejected: dict[int, str] = {}
        self.ended = bytearray(requests)
        self._scheduled_s, self._first_s, self._finish_s, self._scored_s = self.times.values()
        self._cached, self._preemptions, self._recomputed = self.counts.values()

    def record(self, request: EngineRequest) -> None:
        """A request is finished, refused or withdrawn, or its score came after that."""
        row = request.index
        if request.scored_s >= 0:
            self._scored_s[row] = request.scored_s
        self._scheduled_s[row] = request.first_scheduled_s
        self._first_s[row] = request.first_token_s
        self._finish_s[row] = request.finish_s
        if request.cached_tokens:
            self._cached[row] = request.cached_tokens
        if request.preemptions:
            self._preemptions[row] = request.preemptions
            self._recomputed[row] = request.recomputed_tokens
        if request.promoted:
            self.promoted[row] = True
        if request.rejected:
            self.rejected[row] = request.rejected
        self.ended[row] = True

    def frame(self) -> pl.DataFrame:
        """One row a request in order: the times in seconds (null where they never came), the counts, promoted, and
        rejected (the reason, or null)."""
        import numpy as np
        import polars as pl

        times = {name: np.frombuffer(column) for name, column in self.times.items()}
        counts = {name: np.frombuffer(column, dtype=np.int64) for name, column in self.counts.items()}
        rejected = pl.Series("rejected", [None], dtype=pl.String).new_from_index(0, len(self.promoted))
        if self.rejected:
            rejected = rejected.scatter(
                sorted(self.rejected), [self.rejected[i] for i in sorted(self.rejected)]
            )
        return pl.DataFrame(
            {**times, **counts, "promoted": np.frombuffer(self.promoted, dtype=bool), "rejected": rejected}
        ).with_columns(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in TIMES)


def run(
    workload: Workload,
    config: EngineConfig,
    policy: Policy,
    *,
    scoring: ScoringCost | None = None,
    aborts: Mapping[str, float] | None = None,
    observer: StepObserver | None = None,
    learning: LearningScorer | None = None,
    judge: Judge | None = None,
    ids_break_ties: bool = True,
) -> Outcome:
    """Serve a workload on one engine.

    Args:
        workload: who arrives when.
        config: of the engine.
        policy: order, guard and victim.
        scoring: what the scores cost; requests are then without one until the scorer answers.
        aborts: seconds at which the client of a request goes away, by id.
        observer: sees every step.
        learning: gives the scores, from what has finished, in place of those that the workload has.
        judge: says whether scores may order requests; None: the policy's own, if it is to do no harm.
        ids_break_ties: see `RankedQueue`; False is vLLM's own `priority` scheduler.

    Raises:
        UnfitHashes: the workload's hashes do not fit the block size.
    """
    outcome = Outcome(len(workload))
    outcome.scorer = learning
    if learning is None and scoring is not None:
        outcome.scorer = VirtualScorer(scoring)
    if judge is None and policy.do_no_harm:
        from parsim.learner.judge import ScoreJudge

        judge = ScoreJudge()
    requests = workload.requests(config, scored_later=outcome.scorer is not None)
    env = Clock()
    engine = outcome.engine = Engine(
        env, config, policy, outcome.record, outcome.scorer, observer, judge, ids_break_ties
    )
    env.process(source(env, engine, requests, aborts or {}))
    with _collector_paused():
        began = time.process_time()
        env.run_out()
        outcome.cpu_s = time.process_time() - began
    engine.former.cache.check(engine.former.running)
    if not all(outcome.ended):
        raise AssertionError(f"{outcome.ended.count(0)} of {len(workload)} requests never ended")
    return outcome


def source(
    env: Clock, engine: Engine, requests: Iterable[EngineRequest], aborts: Mapping[str, float]
) -> Generator[simpy.Event, None, None]:
    """A process that submits each request when it arrives."""
    now_s = env.now
    for request in requests:
        if request.arrival_s > now_s:
            now_s = request.arrival_s
            yield Moment(env, now_s)
        engine.submit(request)
        if aborts and request.request_id in aborts:
            env.process(_client_that_leaves(env, engine, request, aborts[request.request_id]))


def _client_that_leaves(
    env: Clock, engine: Engine, request: EngineRequest, leaves_s: float
) -> Generator[simpy.Event, None, None]:
    if leaves_s > env.now:
        yield Moment(env, leaves_s)
    engine.abort(request)


def _values(column: Any) -> Sequence[Any]:
    """A list of what a Polars or NumPy column holds; plain sequences as they are."""
    for name in ("to_list", "tolist"):
        if hasattr(column, name):
            return getattr(column, name)()
    return column


def _to_be_scored(request: EngineRequest) -> EngineRequest:
    request.predicted, request.score = request.score, None
    return request


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare the cycle collector: what a run keeps is in columns, and a finished request is in no cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
