"""One continuous-batching engine as a SimPy process."""

from __future__ import annotations

from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Protocol, TypeAlias

import simpy

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.clock import LATE, Clock, Moment
from parsim.engine.coast import Coast
from parsim.engine.config import EngineConfig
from parsim.engine.learning import LearningScorer
from parsim.engine.request import EngineRequest, State
from parsim.engine.scorer import VirtualScorer
from parsim.engine.token_gaps import TokenGaps
from parsim.scheduler.judge import Judge
from parsim.scheduler.policy import Policy
from parsim.scheduler.queue import RankedQueue

FOREVER = float("inf")
_BY_PLACE = attrgetter("place")

EngineScorer: TypeAlias = VirtualScorer[EngineRequest] | LearningScorer
"""What scores requests some time after they arrived."""


class StepObserver(Protocol):
    """Sees every batch as it is formed."""

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        """Called when `batch` has its start and end, before anything of it is known to the requests."""


class Engine:
    """Serves requests in virtual time.

    Without async scheduling a batch is formed when the previous one has ended. With it, a batch is formed while
    the previous one runs: when batch n ends its tokens are accounted for and batch n + 2 is formed, to start
    when n + 1 ends (vLLM's `step_with_batch_queue` with two batches in flight).

    Any process may `submit` and `abort` at any time; both act at the next step boundary. Runs of steps in which
    nothing can happen are advanced at once (`Coast`), and end sooner when something comes.

    Args:
        env: the SimPy environment with a clock of moments; many engines may live in one.
        config: settings and step time.
        policy: order, guard and victim; requests carry their scores.
        done: called with each request that is finished, refused or withdrawn, at that moment; again if its score comes
            only then.
        scorer: gives the requests their `predicted` scores some time after they arrived, as a predictor beside the
            scheduler does; until then they are without a score. It serves this engine alone.
        observer: sees every step; steps are then advanced one by one.
        judge: says whether scores may order requests; None: they may.

    Attributes:
        now: seconds: the step boundary that the engine acts at or waits for.
        step: the number of the last batch formed.
        busy_s: seconds during which a step ran.
        used_block_s: integral of the blocks in use over the steps, in block seconds.
        gaps: the inter-token latency of every token.
    """

    def __init__(
        self,
        env: Clock,
        config: EngineConfig,
        policy: Policy,
        done: Callable[[EngineRequest], None] | None = None,
        scorer: EngineScorer | None = None,
        observer: StepObserver | None = None,
        judge: Judge | None = None,
        ids_break_ties: bool = True,
    ) -> None:
        self.env = env
        self.config = config
        self.scorer = scorer
        self.observer = observer
        self.now = 0.0
        self.step = 0
        self.busy_s = 0.0
        self.used_block_s = 0.0
        self.gaps = TokenGaps(config.step_time)
        self._keep_step = self.gaps.steps.append
        self.queue: RankedQueue[EngineRequest] = RankedQueue(
            policy, judge=judge, ids_break_ties=ids_break_ties
        )
        self.former = BatchFormer(config, self.queue)
        self._seats = config.max_num_seqs
        self._in_turn = not policy.ranked
        self._usable_blocks = config.usable_blocks
        self._step_seconds = config.step_time.seconds
        self._done = done
        self._inbox: list[EngineRequest] = []
        self._aborts: list[EngineRequest] = []
        self._scores_due = False
        self._resting: simpy.Event | None = None
        self._coast: Coast | None = None
        self._end: Moment
        self._deaf = False
        if scorer is not None:
            scorer.on_begin = self._scores_at
        self.process = env.process(self._serve_async() if config.async_scheduling else self._serve())

    def submit(self, request: EngineRequest) -> None:
        """A request arrives now. It joins the queue at the next step boundary, or is refused for good (rule 7)."""
        request.rejected = self._reason_to_reject(request)
        if request.rejected:
            self._finish(request)
            return
        request.overruns = request.stops and self._may_overrun(request)
        if self._coast is not None and self._deaf:
            self.queue.add(request)
            return
        self._inbox.append(request)
        if self._coast is not None:
            self._act_soon()
        elif self._resting is not None:
            wake, self._resting = self._resting, None
            self.env.ring(wake)

    def abort(self, request: EngineRequest) -> None:
        """Withdraw a request that was submitted, at the next step boundary; one that is done is left alone."""
        if request.state is not State.DONE:
            request.rejected = f"aborted at {self.env.now:g} s"
            self._aborts.append(request)
            self._act_soon()

    @property
    def kv_usage(self) -> float:
        """Share of the usable blocks that are in use now."""
        used = self._usable_blocks - self.former.cache.free
        if self._coast is not None:
            steps, decoding = self._coast.formed(self.env.now), self.former.decoding
            numbers = range(self.step + 1, self.step + steps + 1)
            used += sum(decoding.due[number % decoding.block_size] for number in numbers)
        return used / self._usable_blocks

    def _serve(self) -> Generator[simpy.Event, None, None]:
        """Form a batch, let it run, account for its tokens."""
        former = self.former
        while True:
            if self._inbox or self._aborts:
                self._take_in()
            if not former.running and not self.queue:
                yield self._rest()
                self.now = self.env.now
                continue
            batch = self._form(self.now)
            coast = self._promise(batch.end_s, batch.end_s) if former.settled else None
            if coast is None:
                yield self._until(batch.end_s)
            else:
                yield self._end
                batch = self._keep(coast, batch) or batch
            self._account(batch)

    def _serve_async(self) -> Generator[simpy.Event, None, None]:
        """The same with one more batch in flight.

        Why the order: vLLM forms a batch as soon as there is room in its queue of two, so before it looks at the
        output of the first; a request that ends there still holds its seat and blocks when the second is formed. A
        batch without tokens takes no place in the queue.
        """
        former = self.former
        flying: Batch | None = None
        while True:
            if self._inbox or self._aborts:
                self._take_in()
            batch: Batch | None = None
            if former.running or self.queue:
                batch = self._form(self.now if flying is None or flying.end_s < self.now else flying.end_s)
                if not batch:
                    batch = None
                if flying is None:
                    flying = batch
                    continue
            elif flying is None:
                yield self._rest()
                self.now = self.env.now
                continue
            done, flying = flying, batch
            coast = None
            if flying is not None and not flying.caught_up and former.settled:
                coast = self._promise(done.end_s, flying.end_s, done.step)
            if coast is None:
                yield self._until(done.end_s)
                self._account(done)
            else:
                yield self._end
                last = self._keep(coast, done)
                if last is None:
                    self._account(done)
                else:
                    flying = last

    def _until(self, time_s: float) -> Moment:
        """The step boundary at `time_s`."""
        self.now = time_s
        return Moment(self.env, time_s, LATE)

    def _rest(self) -> simpy.Event:
        """Nothing is left to do; wait for a request."""
        self.former.cache.check(())
        self._resting = self.env.event()
        return self._resting

    def _act_soon(self) -> None:
        """Something has come: a run of steps ends with the boundary that is due."""
        if self._coast is not None and self._coast.cut(self.env.now):
            self._end = self._end.sooner(self._coast.boundary_s)

    def _form(self, start_s: float) -> Batch:
        """Form the next batch now, to start at `start_s`. An empty one takes no time."""
        self.step += 1
        former = self.former
        if self.scorer is not None:
            self._take_scores(self.scorer)
        batch = former.form(self.step, self.now)
        batch.start_s = batch.end_s = start_s
        if batch:
            duration = self._step_seconds(
                batch.prefill_tokens, batch.decode_seqs, batch.kv_tokens, batch.attention_pairs
            )
            if self.scorer is not None:
                duration += self.scorer.take_charge_s()
            batch.end_s = start_s + duration
            self.busy_s += duration
            self.used_block_s += duration * (self._usable_blocks - former.cache.free)
        decoded = batch.decode_seqs - batch.surplus
        if former.held_up:
            decoded -= self.gaps.resumed(batch)
            former.held_up = self.gaps.waiting
        if decoded:
            self._keep_step(batch.end_s - start_s)
            self._keep_step(decoded)
        if self.observer is not None:
            self.observer.observe(batch, former)
        return batch

    def _scores_at(self, end_s: float) -> None:
        """The scorer has begun a batch that ends at `end_s`: be there when its scores come."""

        def due(_: simpy.Event) -> None:
            self._scores_due = True
            self._act_soon()

        Moment(self.env, max(end_s, self.env.now)).callbacks.append(due)

    def _take_scores(self, scorer: EngineScorer) -> None:
        """Scores that became known since the last step; they count from this one on."""
        self._scores_due = False
        for request in scorer.poll(self.now):
            request.scored_s = self.now
            if request.state is State.DONE:
                if self._done is not None:
                    self._done(request)
            elif request.predicted is not None:
                self.queue.rescore(request, request.predicted)

    def _account(self, batch: Batch) -> None:
        """The batch has ended: its first and last tokens are out."""
        if self._aborts:
            self._withdraw(batch.step)
        if batch.caught_up:
            self._first_tokens(batch)
        former, step = self.former, batch.step
        ending = former.decoding.ending.pop(step, None)
        if ending is None:
            return
        if len(ending) > 1:
            ending.sort(key=_BY_PLACE)
        for request in ending:
            if request.last_step != step or request.state is State.DONE:
                continue
            request.finish_s = self.now
            if request.waiting:
                self.queue.remove(request)
            else:
                former.decoding.leave(request, self.step + 1)
                former.finish(request, self.step)
            former.settled = False
            self._finish(request)

    def _first_tokens(self, batch: Batch) -> None:
        for request in batch.caught_up:
            if request.first_token_s < 0 and request.state is not State.DONE:
                request.first_token_s = self.now

    def _finish(self, request: EngineRequest) -> None:
        """The request is out of the engine."""
        request.state = State.DONE
        request.prefix = ()
        if request.seq >= 0:
            stopped = True if request.finish_s >= 0 else None
            self.queue.finished(request, request.output_tokens, stopped)
            if self.scorer is not None:
                self.scorer.finished(request, request.output_tokens, stopped)
        if self._done is not None:
            self._done(request)

    def _take_in(self) -> None:
        """What has arrived joins the queue (rule 10)."""
        if self._inbox:
            inbox, self._inbox = self._inbox, []
            scorer = self.scorer
            for request in inbox:
                if scorer is not None:
                    scorer.submit(request, request.prompt_tokens, self.now)
                    request.awaits_score = True
                self.queue.add(request)
            self.former.settled = False
        if self._aborts:
            self._withdraw(self.step)

    def _reason_to_reject(self, request: EngineRequest) -> str:
        config = self.config
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > config.max_model_len:
            return f"prompt + response of {tokens} tokens exceed max_model_len {config.max_model_len}"
        blocks = -(-(tokens - 1) // config.block_size)
        if blocks > config.usable_blocks:
            return f"needs {blocks} KV blocks, the engine has {config.usable_blocks}"
        return ""

    def _may_overrun(self, request: EngineRequest) -> bool:
        """Rule 8: with async scheduling the step after a stop token is formed before that is known."""
        tokens = request.prompt_tokens + request.output_tokens
        return self.config.async_scheduling and tokens < self.config.max_model_len

    def _withdraw(self, in_flight: int) -> None:
        """Withdraw the requests to be aborted; `in_flight` is the last step whose tokens are not known.

        One that has arrived but was not taken in yet is withdrawn after that, as vLLM's input queue does.
        """
        aborts, self._aborts = self._aborts, []
        for request in aborts:
            if request.state is State.DONE:
                continue
            if request.seq < 0:
                self._aborts.append(request)
                continue
            self.former.withdraw(request, self.step + 1, in_flight)
            self.former.settled = False
            self._finish(request)

    def _promise(self, end_s: float, begin_s: float, step: int | None = None) -> Coast | None:
        """Steps that only decode, up to the next event; None if there is no such step.

        While all seats are taken, or the head of a first-come-first-served queue does not fit, nobody who arrives
        changes a batch, nor does the guard: the run goes on. A scorer needs to know when requests were taken in.

        Args:
            end_s: when the batch that is awaited ends.
            begin_s: when the next one begins.
            step: that of the batch that is awaited, if it is not the last.
        """
        former, decoding = self.former, self.former.decoding
        ending = decoding.ending
        if not decoding.count or self.step in ending or step in ending or self.observer is not None:
            return None
        if self._aborts or self._scores_due:
            return None
        deaf = False
        if self.scorer is None:
            seated = len(former.running) >= self._seats
            deaf = seated or (self._in_turn and len(self.queue) > 0)
        horizon_s = FOREVER
        if not deaf and not self._in_turn:
            due_s = self.queue.next_due_s()
            if due_s < FOREVER:
                horizon_s = due_s - 1e-9 * max(1.0, abs(due_s))
                if horizon_s <= end_s:
                    return None
        coast = Coast(
            decoding, self.config.step_time, former.cache.free, self.step, end_s, begin_s, step is not None
        )
        if not coast.steps:
            return None
        if horizon_s < FOREVER:
            coast.cut(horizon_s)
        self._deaf = deaf
        self._coast = coast
        self._end = Moment(self.env, coast.times[coast.steps], LATE)
        return coast

    def _keep(self, coast: Coast, awaited: Batch) -> Batch | None:
        """The run has come to its end; returns the last batch that was formed, or None if it was cut to nothing."""
        self._coast = None
        self.now = coast.times[0]
        steps = coast.steps
        if not steps:
            return None
        if awaited.caught_up:
            self._first_tokens(awaited)
        if self._deaf:
            self.queue.begin_step(coast.times[steps - 1])  # as when the last step was formed
        decoding, cache = self.former.decoding, self.former.cache
        count = decoding.count
        keep = self.gaps.runs.append
        keep(decoding.kv_tokens)
        keep(count)
        keep(steps)
        taken, used_block_s = coast.settle(decoding, self.step, self._usable_blocks - cache.free)
        if taken:
            cache.take(taken)
        self.step += steps
        self.now = coast.boundary_s
        self.busy_s += coast.end_s - coast.begin_s
        self.used_block_s += used_block_s
        batch = Batch(self.step, self.now)
        batch.decode_seqs, batch.end_s = count, coast.end_s
        return batch
