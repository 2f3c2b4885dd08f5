"""The simulated engine on a parity case: the same step log as the drive of vLLM's scheduler writes."""

from __future__ import annotations

from functools import partial

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.learning import LearningScorer
from parsim.engine.run import Workload, run
from parsim.validate.parity.case import Case
from parsim.validate.parity.scorer import LearnerInTurn, features_of_case
from parsim.validate.parity.steps import Step, StepLog


def simulate_case(case: Case, *, steps: bool = True) -> StepLog:
    """Run the case on the simulated engine.

    Args:
        case: what to run.
        steps: log every step. Without, the engine advances runs of uneventful steps at once, as it does for
            users; the log then holds only the requests' times, which must be the same.
    """
    log = StepLog()
    requests = case.requests
    workload = Workload(
        [request.request_id for request in requests],
        [request.arrival_s for request in requests],
        [request.prompt_tokens for request in requests],
        [request.output_tokens for request in requests],
        [request.score for request in requests],
        [request.prefix_hashes for request in requests] if case.hash_block_size else None,
        case.hash_block_size,
        [request.stops for request in requests],
    )
    learning = None
    if case.policy.learns:
        learning = LearningScorer(LearnerInTurn(), partial(features_of_case, case))
    try:
        outcome = run(
            workload,
            case.engine,
            case.policy,
            scoring=case.scoring,
            aborts={r.request_id: r.abort_s for r in requests if r.abort_s is not None},
            observer=_Observer(log, case.most_steps) if steps else None,
            learning=learning,
            ids_break_ties=case.vllms_own != "priority",
        )
    except _Endless:
        log.endless = True
        return log
    log.cpu_s = outcome.cpu_s
    for name, times in (("first_token_s", log.first_token_s), ("finish_s", log.last_token_s)):
        known = zip(workload.request_id, outcome.times[name], strict=True)
        times.update((request_id, time_s) for request_id, time_s in known if time_s >= 0)
    return log


class _Endless(Exception):
    """More steps than the case can need."""


class _Observer:
    """Writes down each batch that has tokens or preempted somebody, up to `most` of them."""

    def __init__(self, log: StepLog, most: int) -> None:
        self.log = log
        self.most = most

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        if not batch and not batch.preempted:
            return
        if len(self.log.steps) >= self.most:
            raise _Endless
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
