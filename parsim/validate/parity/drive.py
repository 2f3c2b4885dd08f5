"""vLLM's scheduler driven step by step under a virtual clock: what the real engine core does, less the model.

The two loops are those of `EngineCore.step` and `EngineCore.step_with_batch_queue` (vLLM 0.32,
`vllm/v1/engine/core.py`) around `EngineCoreProc._process_input_queue`: with async scheduling the batch after
the next is formed when the output of the present one has been processed. The device executes batches in
order, each for as long as the step-time model says; a batch without tokens takes no time.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parsim.validate.parity.bare import bare_request, bare_scheduler
from parsim.validate.parity.case import Case, CaseRequest
from parsim.validate.parity.scorer import CaseScorer, LearnerInTurn
from parsim.validate.parity.steps import Step, StepLog
from parsim.validate.parity.tokens import STOP_TOKEN, response_token_ids

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


def drive(case: Case) -> StepLog:
    """Run the case on vLLM's scheduler; requests that could never fit are left out (`Case.rejection`)."""
    core = _VirtualCore(case)
    core.run()
    if not core.log.endless:
        core.check_empty()
    return core.log


@dataclass(slots=True)
class _Batch:
    output: SchedulerOutput
    sampled: list[list[int]]
    finish_s: float


@dataclass(frozen=True, slots=True)
class _Event:
    time_s: float
    index: int
    abort: bool


class _VirtualCore:
    """One engine core: input queue, scheduler, device; `now_s` is the only clock."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.scheduler, self.hasher = bare_scheduler(case)
        served = [i for i, request in enumerate(case.requests) if case.rejection(request) is None]
        self.index_of = {case.requests[i].request_id: i for i in served}
        events = [_Event(case.requests[i].arrival_s, i, False) for i in served]
        for i in served:
            abort_s = case.requests[i].abort_s
            if abort_s is not None:
                events.append(_Event(max(abort_s, case.requests[i].arrival_s), i, True))
        # An arrival and its abort may come together; the sort is stable and the arrivals stand first.
        self.inputs = deque(sorted(events, key=lambda event: event.time_s))
        self.aborts = deque(event for event in self.inputs if event.abort)
        self.now_s = 0.0
        self.device_free_s = 0.0
        self.in_flight: deque[_Batch] = deque()
        self.caught_up: set[str] = set()
        self.preempted: list[str] = []
        self.responses = {i: self._response(case.requests[i], i) for i in served}
        self.sampled = dict.fromkeys(served, 0)
        self.building_s = 0.0
        self.log = StepLog()
        if hasattr(self.scheduler, "clock"):
            self.scheduler.clock = lambda: self.now_s
        if case.scoring is not None:
            scores = {request.request_id: request.score for request in case.requests}
            scorer = CaseScorer(case.scoring, scores, lambda: self.now_s)
            self.scheduler.serve_by(self.scheduler.settings, scorer)
        elif case.policy.learns:
            self.scheduler.serve_by(self.scheduler.settings, LearnerInTurn())
        self._watch_preemptions()

    def _response(self, request: CaseRequest, index: int) -> list[int]:
        ids = response_token_ids(
            index,
            request.prompt_tokens,
            request.output_tokens,
            request.prefix_hashes,
            self.case.hash_block_size,
        )
        if request.stops:
            ids[-1] = STOP_TOKEN
        return ids

    def _sample(self, index: int) -> int:
        """The next token of a response; a step after its end (rule 8) samples what nobody reads."""
        place = self.sampled[index]
        self.sampled[index] += 1
        response = self.responses[index]
        return response[place] if place < len(response) else STOP_TOKEN

    def run(self) -> None:
        started = time.process_time()
        step = self._step_async if self.case.engine.async_scheduling else self._step
        most = self.case.most_steps
        while self._process_inputs():
            if len(self.log.steps) >= most:
                self.log.endless = True
                break
            step()
        self.log.cpu_s = time.process_time() - started - self.building_s

    def check_empty(self) -> None:
        """Nothing may be left behind: no request, no block, no score."""
        scheduler = self.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        left = {
            "requests": len(scheduler.requests),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "deferred": len(scheduler.deferred_waiting),
            "blocks": self.case.engine.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            "tracked": scheduler.stats()["tracked"] if hasattr(scheduler, "stats") else 0,
        }
        if any(left.values()):
            raise AssertionError(f"left in vLLM's scheduler after the run: {left}")

    def _process_inputs(self) -> bool:
        """`_process_input_queue`: wait until there is work, then take in what has come; False at the end."""
        while not (self.scheduler.has_requests() or self.in_flight):
            if not self.inputs:
                return False
            self.now_s = max(self.now_s, self.inputs[0].time_s)
            self._take_in(self.inputs.popleft())
        while self.inputs and self.inputs[0].time_s <= self.now_s:
            self._take_in(self.inputs.popleft())
        return True

    def _take_in(self, event: _Event) -> None:
        if event.abort:
            self._abort(event.index)
        else:
            started = time.process_time()
            request = bare_request(self.case, event.index, self.hasher)
            self.building_s += time.process_time() - started
            self.scheduler.add_request(request)

    def _process_aborts(self) -> None:
        """`_process_aborts_queue`: aborts that came while the device worked act before its output does.

        vLLM hands them over as one set, whose order Python does not fix; here they act in order of time.
        """
        while self.aborts and self.aborts[0].time_s <= self.now_s:
            self._abort(self.aborts.popleft().index)

    def _abort(self, index: int) -> None:
        from vllm.v1.request import RequestStatus

        request_id = self.case.requests[index].request_id
        self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        self.caught_up.discard(request_id)

    def _step(self) -> None:
        """`EngineCore.step`."""
        if self.scheduler.has_requests():
            self._process_output(self._form())

    def _step_async(self) -> None:
        """`EngineCore.step_with_batch_queue` with its queue of two."""
        if self.scheduler.has_requests():
            batch = self._form()
            self.in_flight.append(batch)
            executed = batch.output.total_num_scheduled_tokens > 0
            if len(self.in_flight) < 2 and (executed or self.scheduler.has_requests()):
                return
        elif not self.in_flight:
            return
        self._process_output(self.in_flight.popleft())

    def _form(self) -> _Batch:
        self.preempted.clear()
        output = self.scheduler.schedule()
        self.caught_up.difference_update(self.preempted)
        scheduled = output.num_scheduled_tokens
        fresh = {new.req_id for new in output.scheduled_new_reqs}
        fresh |= output.scheduled_cached_reqs.resumed_req_ids
        prefill = decode = kv = pairs = 0
        admitted: list[tuple[str, int]] = []
        sampled: list[list[int]] = []
        for request_id, tokens in scheduled.items():
            request = self.scheduler.requests[request_id]
            offset = request.num_computed_tokens - tokens
            if request_id in fresh:
                admitted.append((request_id, offset))
            if request_id in self.caught_up:
                decode += 1
                kv += offset
            else:
                prefill += tokens
                pairs += tokens * offset + tokens * (tokens + 1) // 2
            sampled.append([])
            if not request.is_prefill_chunk:
                self.caught_up.add(request_id)
                index = self.index_of[request_id]
                sampled[-1].append(self._sample(index))
        duration_s = self.case.engine.step_time.seconds(prefill, decode, kv, pairs) if scheduled else 0.0
        start_s = max(self.device_free_s, self.now_s)
        self.device_free_s = start_s + duration_s
        if scheduled or self.preempted:
            self.log.steps.append(
                Step(
                    formed_s=self.now_s,
                    start_s=start_s,
                    end_s=self.device_free_s,
                    scheduled=tuple(scheduled.items()),
                    admitted=tuple(admitted),
                    preempted=tuple(self.preempted),
                    free_blocks=self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
                    running=len(self.scheduler.running),
                    waiting=len(self.scheduler.waiting) + len(self.scheduler.kv_holding_waiting),
                    totals=(prefill, decode, kv, pairs),
                )
            )
        return _Batch(output, sampled, self.device_free_s)

    def _process_output(self, batch: _Batch) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        self.now_s = batch.finish_s
        self._process_aborts()
        ids = list(batch.output.num_scheduled_tokens)
        model_output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=batch.sampled,
        )
        outputs = self.scheduler.update_from_output(batch.output, model_output)
        for client in outputs.values():
            for output in client.outputs:
                if output.new_token_ids:
                    self.log.first_token_s.setdefault(output.request_id, self.now_s)
                if output.finish_reason is not None:
                    self.log.last_token_s[output.request_id] = self.now_s
                    self.caught_up.discard(output.request_id)

    def _watch_preemptions(self) -> None:
        preempt = self.scheduler._preempt_request

        def watched(request: Request, *args: Any, **options: Any) -> None:
            self.preempted.append(request.request_id)
            preempt(request, *args, **options)

        self.scheduler._preempt_request = watched
