"""One continuous-batching engine as a SimPy process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

import simpy

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.config import EngineConfig
from parsim.engine.request import EngineRequest, State
from parsim.engine.scorer import VirtualScorer
from parsim.engine.token_gaps import TokenGaps
from parsim.scheduler.policy import Policy
from parsim.scheduler.queue import RankedQueue

FOREVER = float("inf")
_BY_PLACE = attrgetter("place")


class StepObserver(Protocol):
    """Sees every batch as it is formed."""

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        """Called when `batch` has its start and end, before anything of it is known to the requests."""


class Engine:
    """Serves requests in virtual time.

    Without async scheduling a batch is formed when the previous one has ended. With it, a batch is formed while
    the previous one runs: when batch n ends its tokens are accounted for and batch n + 2 is formed, to start
    when n + 1 ends (vLLM's `step_with_batch_queue` with two batches in flight).

    Runs of steps in which nothing can happen are advanced at once.

    Args:
        env: the SimPy environment.
        config: settings and step time.
        policy: order, guard and victim; requests carry their scores.
        requests: in order of arrival. Their fields receive the outcome.
        aborts: seconds at which a request is withdrawn, by id.
        scorer: gives the requests their `predicted` scores some time after they arrived, as a predictor beside the
            scheduler does; until then they are without a score.
        observer: sees every step; steps are then advanced one by one.

    Attributes:
        now: seconds; the process may be ahead of `env.now` by rounding.
        step: the number of the last batch formed.
        busy_s: seconds during which a step ran.
        used_block_s: integral of the blocks in use over the steps, in block seconds.
        gaps: the inter-token latency of every token.
    """

    def __init__(
        self,
        env: simpy.Environment,
        config: EngineConfig,
        policy: Policy,
        requests: Sequence[EngineRequest],
        aborts: Mapping[str, float] | None = None,
        scorer: VirtualScorer[EngineRequest] | None = None,
        observer: StepObserver | None = None,
    ) -> None:
        self.env = env
        self.config = config
        self.scorer = scorer
        self.observer = observer
        self.now = 0.0
        self.step = 0
        self.busy_s = 0.0
        self.used_block_s = 0.0
        self.gaps = TokenGaps(config.step_time.kv_token_s)
        self._keep_step = self.gaps.steps.append
        self.queue: RankedQueue[EngineRequest] = RankedQueue(policy)
        self.former = BatchFormer(config, self.queue)
        self._arrivals = list(reversed(requests))
        self._aborts = self._by_time(aborts or {}, requests)
        self.process = env.process(self._serve_async() if config.async_scheduling else self._serve())

    def _serve(self) -> Generator[simpy.Event, None, None]:
        """Form a batch, let it run, account for its tokens."""
        former = self.former
        while True:
            self._take_in()
            if not former.running and not self.queue:
                if not self._arrivals:
                    break
                yield self._until(max(self.now, self._arrivals[-1].arrival_s))
                continue
            batch = self._form(self.now)
            yield self._until(batch.end_s)
            self._account(batch)
            if former.settled and self.observer is None:
                coasted = self._coast(None)
                if coasted is not None:
                    yield self._until(self.now)
                    self._account(coasted)
        former.cache.check(list(former.running))

    def _serve_async(self) -> Generator[simpy.Event, None, None]:
        """The same with one more batch in flight."""
        former = self.former
        flying: Batch | None = None
        while True:
            self._take_in()
            batch: Batch | None = None
            if former.running or self.queue:
                batch = self._form(max(self.now, flying.end_s if flying else 0.0))
                if not batch:
                    batch = None
                if flying is None:
                    flying = batch
                    continue
            elif flying is None:
                if not self._arrivals:
                    break
                yield self._until(max(self.now, self._arrivals[-1].arrival_s))
                continue
            done, flying = flying, batch
            yield self._until(done.end_s)
            self._account(done)
            if flying is not None and not flying.caught_up and former.settled and self.observer is None:
                coasted = self._coast(flying)
                if coasted is not None:
                    flying = coasted
                    yield self._until(self.now)
        former.cache.check(list(former.running))

    def _until(self, time_s: float) -> simpy.Event:
        """Advance the clock; never backwards."""
        self.now = time_s
        return self.env.timeout(max(0.0, time_s - self.env.now))

    def _form(self, start_s: float) -> Batch:
        """Form the next batch now, to start at `start_s`. An empty one takes no time."""
        self.step += 1
        former = self.former
        if self.scorer is not None:
            self._take_scores(self.scorer)
        batch = former.form(self.step, self.now)
        batch.start_s = batch.end_s = start_s
        if batch:
            duration = self.config.step_time.seconds(
                batch.prefill_tokens, batch.decode_seqs, batch.kv_tokens, batch.attention_pairs
            )
            if self.scorer is not None:
                duration += self.scorer.take_charge_s()
            batch.end_s = start_s + duration
            self.busy_s += duration
            self.used_block_s += duration * (self.config.usable_blocks - former.cache.free)
        decoded = batch.decode_seqs
        if former.held_up:
            decoded -= self.gaps.resumed(batch)
            former.held_up = self.gaps.waiting
        if decoded:
            self._keep_step(batch.end_s - start_s)
            self._keep_step(decoded)
        if self.observer is not None:
            self.observer.observe(batch, former)
        return batch

    def _take_scores(self, scorer: VirtualScorer[EngineRequest]) -> None:
        """Scores that became known since the last step; they count from this one on."""
        for request in scorer.poll(self.now):
            request.scored_s = self.now
            if request.state is not State.DONE and request.predicted is not None:
                self.queue.rescore(request, request.predicted)

    def _account(self, batch: Batch) -> None:
        """The batch has ended: its first and last tokens are out."""
        if self._aborts:
            self._withdraw_due(batch.step)
        for request in batch.caught_up:
            if request.first_token_s < 0 and request.state is not State.DONE:
                request.first_token_s = self.now
        former, step = self.former, batch.step
        ending = former.decoding.ending.pop(step, [])
        if len(ending) > 1:
            ending.sort(key=_BY_PLACE)
        for request in ending:
            if request.last_step != step or request.state is State.DONE:
                continue
            request.finish_s = self.now
            if request.waiting:
                self.queue.remove(request)
            else:
                former.decoding.leave(request, step + 1)
                former.finish(request)
            request.state = State.DONE
            request.prefix = ()
            former.settled = False

    def _take_in(self) -> None:
        """Requests that have arrived join the queue, or are refused if they can never run."""
        arrivals, now = self._arrivals, self.now
        while arrivals and arrivals[-1].arrival_s <= now:
            request = arrivals.pop()
            request.rejected = self._reason_to_reject(request)
            if request.rejected:
                request.state = State.DONE
            else:
                if self.scorer is not None:
                    self.scorer.submit(request, request.prompt_tokens, now)
                    request.awaits_score = True
                self.queue.add(request)
                self.former.settled = False
        if self._aborts:
            self._withdraw_due(self.step)

    def _reason_to_reject(self, request: EngineRequest) -> str:
        config = self.config
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > config.max_model_len:
            return f"prompt + response of {tokens} tokens exceed max_model_len {config.max_model_len}"
        blocks = -(-(tokens - 1) // config.block_size)
        if blocks > config.usable_blocks:
            return f"needs {blocks} KV blocks, the engine has {config.usable_blocks}"
        return ""

    def _by_time(
        self, aborts: Mapping[str, float], requests: Sequence[EngineRequest]
    ) -> list[tuple[float, int, EngineRequest]]:
        """Aborts, the latest first."""
        due = [(aborts[r.request_id], r.index, r) for r in requests if r.request_id in aborts]
        return sorted(due, key=lambda abort: abort[:2], reverse=True)

    def _withdraw_due(self, in_flight: int) -> None:
        """Withdraw the requests whose abort is due; `in_flight` is the last step whose tokens are not known.

        One that has arrived but was not taken in yet is withdrawn after that, as vLLM's input queue does.
        """
        later = []
        while self._aborts and self._aborts[-1][0] <= self.now:
            abort = self._aborts.pop()
            time_s, _, request = abort
            if request.state is State.DONE:
                continue
            if request.seq < 0:
                later.append(abort)
                continue
            self.former.withdraw(request, self.step + 1, in_flight)
            request.state = State.DONE
            request.prefix = ()
            request.rejected = f"aborted at {time_s:g} s"
            self.former.settled = False
        self._aborts.extend(reversed(later))

    def _horizon_s(self) -> float:
        """A time before which no request arrives, is scored, promoted or withdrawn."""
        horizon = self._arrivals[-1].arrival_s if self._arrivals else FOREVER
        if self.scorer is not None:
            horizon = min(horizon, self.scorer.next_s)
        if self._aborts:
            horizon = min(horizon, self._aborts[-1][0])
        due = self.queue.next_due_s()
        if due < horizon:
            horizon = due - 1e-9 * max(1.0, abs(due))
        return horizon

    def _coast(self, flying: Batch | None) -> Batch | None:
        """Advance over steps that only decode, up to the next event; None if there is no such step.

        `flying`: the batch in flight under async scheduling. The sums are those of step-by-step simulation, in
        the same order, so that the clock is the same to the last bit.
        """
        decoding, cache = self.former.decoding, self.former.cache
        count = decoding.count
        if not count:
            return None
        horizon = self._horizon_s()
        step_time = self.config.step_time
        fixed_s = step_time.base_s + step_time.decode_seq_s * count
        kv_token_s = step_time.kv_token_s
        ending, due, period = decoding.ending, decoding.due, self.config.block_size
        kv_tokens, free = decoding.kv_tokens, cache.free
        used = self.config.usable_blocks - free
        used_block_s = 0.0
        step = first = self.step
        now = self.now
        end = now if flying is None else flying.end_s
        begin = end
        taken = 0
        while now < horizon and step not in ending:
            blocks = due[(step + 1) % period]
            if taken + blocks > free:
                break
            taken += blocks
            step += 1
            duration = fixed_s + kv_token_s * kv_tokens
            used_block_s += (used + taken) * duration
            kv_tokens += count
            if flying is None:
                now = end = end + duration
            else:
                now = end
                end += duration
        if step == first:
            return None
        keep = self.gaps.runs.append
        keep(fixed_s + kv_token_s * decoding.kv_tokens)
        keep(count)
        keep(step - first)
        cache.take(taken)
        decoding.kv_tokens = kv_tokens
        self.step = step
        self.now = now
        self.busy_s += end - begin
        self.used_block_s += used_block_s
        batch = Batch(step, now)
        batch.decode_seqs = count
        batch.end_s = end
        return batch
