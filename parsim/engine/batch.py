"""What a step contains: the rules of vLLM V1's scheduler (0.32)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from parsim.engine.config import EngineConfig
from parsim.engine.decoding import Decoding
from parsim.engine.kv_cache import KVCache
from parsim.engine.prefix_cache import PrefixCache
from parsim.engine.request import EngineRequest, State
from parsim.scheduler.queue import RankedQueue
from parsim.scheduler.victim import worst


class Batch:
    """The work of one step.

    Attributes:
        step: its number.
        formed_s, start_s, end_s: when it was formed, begins and ends, in seconds.
        prefill_tokens, decode_seqs, kv_tokens, attention_pairs: totals, see `StepTime.seconds`.
        caught_up: requests whose prefill ends in this step, which samples a token for each.
        admitted: requests taken from the waiting queue, in order, with their cached tokens.
        preempted: requests sent back, in order.
        surplus: decoding sequences whose response has ended already (rule 8).
        paused: decoding requests that were passed over, since the budget or the blocks were used up.
        chunks: prefill tokens by request.
    """

    prefill_tokens = decode_seqs = kv_tokens = attention_pairs = surplus = 0
    caught_up: Sequence[EngineRequest] = ()
    admitted: Sequence[tuple[EngineRequest, int]] = ()
    preempted: Sequence[EngineRequest] = ()
    paused: Sequence[EngineRequest] = ()
    chunks: Mapping[EngineRequest, int] = MappingProxyType({})

    def __init__(self, step: int, formed_s: float) -> None:
        self.step = step
        self.formed_s = self.start_s = self.end_s = formed_s

    def __bool__(self) -> bool:
        """Whether anything is computed."""
        return self.decode_seqs > 0 or self.prefill_tokens > 0


class BatchFormer:
    """Forms one batch after the other from the running and the waiting requests.

    Attributes:
        running: in order of admission (the values are unused).
        prefilling: the running requests that have not caught up, in order of admission.
        decoding: the others.
        growing: those of them whose response others may find in the prefix cache (the values are unused).
        held_up: some requests have been preempted or passed over and not gone on since; whoever counts their gaps
            clears it.
        settled: the next batch will contain just the decoding sequences, unless something happens: a request
            arrives, ends or is promoted, or blocks run out.
    """

    def __init__(self, config: EngineConfig, queue: RankedQueue[EngineRequest]) -> None:
        self.config = config
        self.queue = queue
        self.cache = (PrefixCache if config.enable_prefix_caching else KVCache)(
            config.usable_blocks, config.block_size
        )
        self.running: dict[EngineRequest, None] = {}
        self.prefilling: list[EngineRequest] = []
        self.decoding = Decoding(config.block_size)
        self.growing: dict[EngineRequest, None] = {}
        self.held_up = False
        self.settled = False
        self.preemptions = 0
        self._admissions = 0
        self._block_size = config.block_size
        self._max_num_seqs = config.max_num_seqs
        self._reserve_full = config.scheduler_reserve_full_isl
        self._victim_is_worst = queue.policy.victim == "worst"
        self._watermark = config.watermark_blocks

    def form(self, step: int, now_s: float) -> Batch:
        """Form the batch of `step` (numbers ascend by 1), at `now_s` seconds: rules 1 and 9."""
        self.queue.begin_step(now_s)
        decoding = self.decoding
        batch = Batch(step, now_s)
        if step - 1 in decoding.ending:
            batch.surplus = decoding.retire(step - 1)
        config = self.config
        threshold = config.long_prefill_token_threshold
        if threshold and len(self.running) + len(self.queue) <= 1:
            threshold = 0
        budget = self._schedule_running(batch, config.max_num_batched_tokens, threshold)
        if not batch.preempted:
            self._schedule_waiting(batch, budget, threshold)
        else:
            self.settled = False
        for request in batch.caught_up:
            request.state = State.DECODE
            decoding.join(request, step)
            if len(request.prefix) * self._block_size > request.computed:
                self.growing[request] = None
        return batch

    def finish(self, request: EngineRequest, step: int) -> None:
        """Free a running request that has sampled its last token, which needs no slot (rule 5).

        `step`: the last to be formed.
        """
        del self.running[request]
        known = tokens = request.prompt_tokens + request.output_tokens - 1
        if request.overruns:
            tokens = request.prompt_tokens + request.generated + step - request.joined
        self.growing.pop(request, None)
        self.cache.release(request, tokens, known, for_good=True)

    def withdraw(self, request: EngineRequest, next_step: int, in_flight: int) -> None:
        """Abort a request; `next_step` is the next to be formed, `in_flight` see `_release`."""
        if request.waiting:
            self.queue.remove(request)
            self.cache.release(request, 0, 0, for_good=True)
            return
        del self.running[request]
        self._release(request, next_step, in_flight, for_good=True)
        self.decoding.leave(request, next_step)
        if request.state is State.PREFILL:
            self.prefilling.remove(request)
        request.last_step = -1

    def _schedule_running(self, batch: Batch, budget: int, threshold: int) -> int:
        """Schedule the running requests; returns the tokens left for waiting ones."""
        decoding, cache = self.decoding, self.cache
        sequences = decoding.count
        blocks = decoding.due[batch.step % self._block_size]
        chunks = []
        left = budget - sequences
        for request in self.prefilling:
            tokens = request.prompt_tokens + request.generated - request.computed
            if 0 < threshold < tokens:
                tokens = threshold
            if tokens > left:
                if request is not next(reversed(self.running)):
                    return self._schedule_one_by_one(batch, budget, threshold)
                tokens = left
            if tokens:
                left -= tokens
                blocks += self._new_blocks(request, tokens)
                chunks.append((request, tokens))
        if blocks > cache.free:
            return self._schedule_one_by_one(batch, budget, threshold)
        if blocks:
            cache.take(blocks)
        for request, tokens in chunks:
            self._fill(request, tokens, batch.step)
        if chunks:
            self._count_chunks(batch, chunks)
        batch.decode_seqs = sequences
        batch.kv_tokens = decoding.kv_tokens
        decoding.kv_tokens += sequences
        return left

    def _schedule_one_by_one(self, batch: Batch, budget: int, threshold: int) -> int:
        """The same where blocks or the budget do not suffice: in order, with preemption (rule 3). O(running)."""
        step, decoding, cache = batch.step, self.decoding, self.cache
        order = list(self.running)
        scheduled: dict[EngineRequest, int] = {}
        place = 0
        while place < len(order) and budget > 0:
            request = order[place]
            if request.state is State.DECODE:
                if not request.decoding:
                    place += 1
                    continue
                tokens = 1
                blocks = int(request.residue == step % self._block_size)
            else:
                tokens = request.prompt_tokens + request.generated - request.computed
                if 0 < threshold < tokens:
                    tokens = threshold
                tokens = min(tokens, budget)
                blocks = self._new_blocks(request, tokens)
            victim = None
            while blocks > cache.free and victim is not request:
                victim = worst(order, self.queue.key) if self._victim_is_worst else order[-1]
                victim_place = order.index(victim) if self._victim_is_worst else len(order) - 1
                del order[victim_place]
                if victim_place < place:
                    place -= 1
                given = scheduled.pop(victim, 0)
                budget += given
                self._preempt(victim, batch, given)
            if victim is request:
                break
            cache.take(blocks)
            if request.state is State.PREFILL:
                self._fill(request, tokens, step, scheduled)
            scheduled[request] = tokens
            budget -= tokens
            place += 1
        self._count_chunks(batch, [item for item in scheduled.items() if item[0].state is State.PREFILL])
        paused = []
        for request in order:
            if request.decoding:
                if request in scheduled:
                    batch.decode_seqs += 1
                    batch.kv_tokens += request.prompt_tokens + request.generated + step - 1 - request.joined
                else:
                    decoding.pause(request, step)
                    paused.append(request)
        batch.paused = paused
        self.held_up = True
        decoding.kv_tokens += batch.decode_seqs
        return budget

    def _schedule_waiting(self, batch: Batch, budget: int, threshold: int) -> None:
        """Admit waiting requests, the head first, until the budget, a seat or the blocks end: rule 2."""
        queue, cache, running = self.queue, self.cache, self.running
        if not queue:
            self.settled = not self.prefilling
            return
        block_size, max_num_seqs, reserve_full = self._block_size, self._max_num_seqs, self._reserve_full
        admitted: list[tuple[EngineRequest, int]] = []
        chunks: list[tuple[EngineRequest, int]] = []
        self.settled = False
        while queue:
            if len(running) >= max_num_seqs:
                self.settled = True
                break
            if budget <= 0:
                break
            request = queue.peek()
            sequence = request.prompt_tokens + request.generated
            if self.growing and request.prefix:
                self._grow(request.prefix[0], batch.step)
            hits = cache.lookup(request, sequence)
            cached = hits * block_size
            tokens = sequence - cached
            if 0 < threshold < tokens:
                tokens = threshold
            if tokens > budget:
                if not self.config.enable_chunked_prefill:
                    break
                tokens = budget
            spare = cache.free - (self._watermark if running else 0) - cache.idle_hits + hits
            blocks = -(-(cached + tokens) // block_size)
            needed = -(-sequence // block_size) if reserve_full else blocks
            if needed > spare or blocks > spare:
                self.settled = not queue.policy.reorders_with_time
                break
            queue.pop()
            running[request] = None
            request.state = State.PREFILL
            request.place = self._admissions
            self._admissions += 1
            if request.first_scheduled_s < 0:
                request.first_scheduled_s = batch.formed_s
                request.cached_tokens = cached
            cache.acquire(request, hits)
            cache.take(blocks - hits)
            request.computed = cached
            request.blocks = hits
            self._fill(request, tokens, batch.step)
            self.prefilling.append(request)
            admitted.append((request, cached))
            chunks.append((request, tokens))
            budget -= tokens
        else:
            self.settled = True
        if chunks:
            batch.admitted = admitted
            self._count_chunks(batch, chunks)
        if self.prefilling:
            self.settled = False

    def _new_blocks(self, request: EngineRequest, tokens: int) -> int:
        return -(-(request.computed + tokens) // self._block_size) - request.blocks

    def _fill(
        self,
        request: EngineRequest,
        tokens: int,
        step: int,
        scheduled: Container[EngineRequest] | None = None,
    ) -> None:
        """The chunk's blocks are the request's, and can be found from now on; of copies the oldest is found, so what
        decoding requests have filled by now comes first."""
        if self.growing and request.prefix:
            self._grow(request.prefix[0], step, request.place, scheduled)
        end = request.computed + tokens
        request.blocks = -(-end // self._block_size)
        self.cache.fill(request, request.blocks, end)

    def _count_chunks(self, batch: Batch, chunks: list[tuple[EngineRequest, int]]) -> None:
        """Add prefill chunks to the batch and advance their requests."""
        caught_up = [*batch.caught_up]
        for request, tokens in chunks:
            start = request.computed
            end = request.computed = start + tokens
            batch.prefill_tokens += tokens
            batch.attention_pairs += tokens * start + tokens * (tokens + 1) // 2
            if start < request.computed_peak:
                request.recomputed_tokens += min(end, request.computed_peak) - start
            if end == request.prompt_tokens + request.generated:
                caught_up.append(request)
                self.prefilling.remove(request)
        batch.caught_up = caught_up
        batch.chunks = {**batch.chunks, **dict(chunks)}

    def _preempt(self, request: EngineRequest, batch: Batch, scheduled: int) -> None:
        """Rule 3: send a running request back; `scheduled` tokens of it were already in this batch."""
        step = batch.step
        del self.running[request]
        computed = self._release(request, step, step - 1, for_good=False, scheduled=scheduled)
        if request.state is State.PREFILL:
            self.prefilling.remove(request)
        else:
            self.decoding.leave(request, step)
            request.generated += step - request.joined
            if request.last_step >= step:
                request.last_step = -1
        request.computed_peak = max(request.computed_peak, computed)
        request.computed = 0
        request.state = State.WAITING
        request.preemptions += 1
        self.preemptions += 1
        batch.preempted = [*batch.preempted, request]
        self.queue.add(request)

    def _release(
        self, request: EngineRequest, step: int, in_flight: int, for_good: bool, scheduled: int = 0
    ) -> int:
        """Free a running request's blocks before `step` is formed; returns the tokens it had computed.

        Under async scheduling the token of step `in_flight` is not known yet, so the last block is not findable
        even if it is full (rule 5); in step order, what was scheduled in the batch being formed (`scheduled`) counts.
        """
        self.growing.pop(request, None)
        if request.state is State.PREFILL:
            computed = request.computed
            known = computed + scheduled
        else:
            computed = self._computed(request, step - 1)
            known = self._known(request, computed + scheduled, in_flight)
        self.cache.release(request, computed + scheduled, known, for_good)
        return computed

    def _computed(self, request: EngineRequest, step: int) -> int:
        """Tokens that a decoding request has computed after `step`."""
        last = min(step, request.last_step + request.overruns)
        return request.prompt_tokens + request.generated + last - request.joined

    def _known(self, request: EngineRequest, computed: int, in_flight: int) -> int:
        """Rule 5: how many of the tokens that a decoding request has computed are known while `in_flight` runs."""
        caught_up = request.prompt_tokens + request.generated
        unknown = not (request.idle_from <= in_flight <= request.idle_to)
        return computed - (self.config.async_scheduling and unknown and computed > caught_up)

    def _grow(
        self,
        root: int,
        step: int,
        place: int | None = None,
        scheduled: Container[EngineRequest] | None = None,
    ) -> None:
        """Let the full blocks be found of those responses that begin with the block `root`.

        Why here: a decoding request is not touched from step to step, so its blocks are brought up to date when
        somebody looks for them, when all running requests have been scheduled in `step`, or fills a like one, when
        those before `place` have (where it is not sure: those in `scheduled`).
        """
        for request in self.growing:
            if request.prefix[0] == root:
                is_in = place is None or (
                    request.place < place if scheduled is None else request in scheduled
                )
                computed = self._computed(request, step if is_in else step - 1)
                self.cache.fill(
                    request, -(-computed // self._block_size), self._known(request, computed, step - 1)
                )
