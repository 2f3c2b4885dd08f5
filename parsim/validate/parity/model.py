"""The simulated engine on a parity case: the same step log as the drive of vLLM's scheduler writes."""

from __future__ import annotations

import gc
import time

import simpy

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.engine import Engine
from parsim.engine.prefix_cache import PrefixIds
from parsim.engine.request import EngineRequest
from parsim.engine.scorer import VirtualScorer
from parsim.validate.parity.case import Case
from parsim.validate.parity.steps import Step, StepLog


def simulate_case(case: Case, *, steps: bool = True) -> StepLog:
    """Run the case on the simulated engine.

    Args:
        case: what to run.
        steps: log every step. Without, the engine advances runs of uneventful steps at once, as it does for
            users; the log then holds only the requests' times, which must be the same.
    """
    log = StepLog()
    requests = _requests(case)
    aborts = {r.request_id: r.abort_s for r in case.requests if r.abort_s is not None}
    env = simpy.Environment()
    observer = _Observer(log) if steps else None
    scorer: VirtualScorer[EngineRequest] | None = None
    if case.scoring is not None:
        scorer = VirtualScorer(case.scoring)
        for request in requests:
            request.predicted, request.score = request.score, None
    Engine(env, case.engine, case.policy, requests, aborts or None, scorer, observer)
    gc.disable()  # as `parsim.simulation` does: a run keeps all it allocates
    started = time.process_time()
    try:
        env.run()
    finally:
        log.cpu_s = time.process_time() - started
        gc.enable()
    for request in requests:
        if request.first_token_s >= 0:
            log.first_token_s[request.request_id] = request.first_token_s
        if request.finish_s >= 0:
            log.last_token_s[request.request_id] = request.finish_s
    return log


def _requests(case: Case) -> list[EngineRequest]:
    ids = None
    if case.engine.enable_prefix_caching and case.hash_block_size:
        ids = PrefixIds(case.engine.block_size, case.hash_block_size)
    return [
        EngineRequest(
            index,
            request.request_id,
            request.arrival_s,
            request.prompt_tokens,
            request.output_tokens,
            request.score,
            ids.of(request.prefix_hashes) if ids else (),
        )
        for index, request in enumerate(case.requests)
    ]


class _Observer:
    """Writes down each batch that has tokens or preempted somebody."""

    def __init__(self, log: StepLog) -> None:
        self.log = log

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        if not batch and not batch.preempted:
            return
        scheduled = []
        for request in former.running:
            tokens = batch.chunks.get(request)
            if tokens is not None:
                scheduled.append((request.request_id, tokens))
            elif request.decoding and request.idle_to != batch.step:
                scheduled.append((request.request_id, 1))
        self.log.steps.append(
            Step(
                formed_s=batch.formed_s,
                start_s=batch.start_s,
                end_s=batch.end_s,
                scheduled=tuple(scheduled),
                admitted=tuple((request.request_id, cached) for request, cached in batch.admitted),
                preempted=tuple(request.request_id for request in batch.preempted),
                free_blocks=former.cache.free,
                running=len(former.running),
                waiting=len(former.queue),
                totals=(batch.prefill_tokens, batch.decode_seqs, batch.kv_tokens, batch.attention_pairs),
            )
        )
