"""Small cases worked out by hand. Unit step time: base 1 s, so a step is a second and a time is a step number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from parsim.engine.config import EngineConfig
from parsim.engine.run import Workload, run
from parsim.engine.step_log import StepLog
from parsim.engine.step_time import StepTime
from parsim.scheduler.policy import Policy, parse_policy


def engine_config(**settings: object) -> EngineConfig:
    plain = {
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "num_gpu_blocks": 101,
        "block_size": 16,
    }
    return EngineConfig.model_validate(
        {
            "step_time": StepTime(base_s=1.0),
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            **plain,
            **settings,
        }
    )


def serve(
    rows: list[tuple[float, int, int]], policy: Policy | None = None, **settings: object
) -> tuple[list[SimpleNamespace], StepLog]:
    """Serve (arrival_s, prompt_tokens, output_tokens) rows; the score is the response length."""
    arrivals, prompts, outputs = zip(*rows, strict=True)
    names = [f"r{i}" for i in range(len(rows))]
    workload = Workload(names, arrivals, prompts, outputs, [float(output) for output in outputs])
    log = StepLog(detail=True)
    outcome = run(workload, engine_config(**settings), policy or parse_policy("fcfs"), observer=log)
    served = outcome.frame().rows(named=True)
    return [SimpleNamespace(request_id=n, **row) for n, row in zip(names, served, strict=True)], log


def scheduled(log: StepLog) -> list[list[tuple[str, int]]]:
    return [[(item["request_id"], item["tokens"]) for item in row["scheduled"]] for row in log.rows]


def test_one_request() -> None:
    """Prefill in step 1 samples token 1; tokens 2 and 3 take a step each."""
    (request,), log = serve([(5.0, 10, 3)])
    assert (request.first_scheduled_s, request.first_token_s, request.finish_s) == (5.0, 6.0, 8.0)
    assert scheduled(log) == [[("r0", 10)], [("r0", 1)], [("r0", 1)]]


def test_one_output_token_ends_with_the_prefill() -> None:
    (request,), log = serve([(0.0, 10, 1)])
    assert request.first_token_s == request.finish_s == 1.0
    assert len(log.rows) == 1


def test_two_requests_with_one_slot() -> None:
    """The second is admitted in the step after the first ends, and waits until then."""
    (first, second), _ = serve([(0.0, 10, 3), (0.0, 10, 2)], max_num_seqs=1)
    assert first.finish_s == 3.0
    assert (second.first_scheduled_s, second.first_token_s, second.finish_s) == (3.0, 4.0, 5.0)


def test_two_requests_with_one_slot_shortest_first() -> None:
    (long, short), _ = serve([(0.0, 10, 3), (0.0, 10, 2)], parse_policy("oracle"), max_num_seqs=1)
    assert (short.finish_s, long.finish_s) == (2.0, 5.0)


def test_prefill_in_chunks_over_three_steps() -> None:
    """A prompt of 40 tokens at 16 a step: 16, 16, 8; the rest of the third step's budget admits the next."""
    (long, short), log = serve([(0.0, 40, 1), (0.0, 6, 2)], max_num_batched_tokens=16)
    assert scheduled(log)[:3] == [[("r0", 16)], [("r0", 16)], [("r0", 8), ("r1", 6)]]
    assert long.first_token_s == short.first_token_s == 3.0
    assert [row["attention_pairs"] for row in log.rows[:2]] == [136, 16 * 16 + 136]


def test_decoding_comes_before_waiting_in_the_budget() -> None:
    """While r0 decodes, 15 of 16 tokens are left for r1's prompt of 20."""
    _, log = serve([(0.0, 4, 4), (0.5, 20, 1)], max_num_batched_tokens=16)
    assert scheduled(log)[1:3] == [[("r0", 1), ("r1", 15)], [("r0", 1), ("r1", 5)]]


def test_without_chunked_prefill_a_prompt_waits_for_a_whole_budget() -> None:
    _, log = serve(
        [(0.0, 10, 1), (0.0, 10, 1)],
        enable_chunked_prefill=False,
        max_num_batched_tokens=16,
        max_model_len=16,
    )
    assert scheduled(log) == [[("r0", 10)], [("r1", 10)]]


def test_long_prefill_threshold_holds_only_beside_others() -> None:
    _, alone = serve([(0.0, 30, 1)], long_prefill_token_threshold=8)
    _, beside = serve([(0.0, 30, 1), (0.0, 3, 1)], long_prefill_token_threshold=8)
    assert scheduled(alone) == [[("r0", 30)]]
    assert scheduled(beside) == [[("r0", 8), ("r1", 3)], [("r0", 22)]]


@pytest.mark.parametrize(("prompt", "blocks"), [(15, 1), (16, 1), (17, 2)])
def test_blocks_of_a_prompt(prompt: int, blocks: int) -> None:
    _, log = serve([(0.0, prompt, 2)])
    assert 100 - log.rows[0]["free_blocks"] == blocks


@pytest.mark.parametrize(("prompt", "blocks"), [(14, 1), (15, 1), (16, 2)])
def test_the_last_sampled_token_needs_no_slot(prompt: int, blocks: int) -> None:
    """Two output tokens: the first is computed at position `prompt`, the second never."""
    _, log = serve([(0.0, prompt, 2)])
    assert 100 - log.rows[1]["free_blocks"] == blocks


def test_preemption_and_recomputation() -> None:
    """Blocks of 4 tokens, 4 usable. r0 and r1 prefill 7 tokens each: 2 + 2 blocks, none free.

    Step 2 computes position 7 of both, in the blocks they have. In step 3 r0 needs a third block, so r1, last
    admitted, loses its 2 blocks, with 2 tokens sampled and 8 computed. r0 ends in step 4 (4 tokens). r1 is
    recomputed in step 5: 7 + 2 tokens in one chunk, samples its third token, and its fourth in step 6.
    """
    (r0, r1), log = serve([(0.0, 7, 4), (0.0, 7, 4)], num_gpu_blocks=5, block_size=4, max_model_len=16)
    assert log.rows[2]["preempted"] == ["r1"]
    assert scheduled(log) == [
        [("r0", 7), ("r1", 7)],
        [("r0", 1), ("r1", 1)],
        [("r0", 1)],
        [("r0", 1)],
        [("r1", 9)],
        [("r1", 1)],
    ]
    assert (r0.finish_s, r1.first_token_s, r1.finish_s) == (4.0, 1.0, 6.0)
    assert (r1.preemptions, r1.recomputed_tokens, r0.preemptions) == (1, 8, 0)


def test_the_worst_victim_is_the_longest_and_its_place_in_the_batch_is_given_back() -> None:
    """As above with r0 the longer.

    Shortest first admits r1, then r0; in step 3 r1 (first in order) needs a block and r0 loses its two.
    """
    policy = Policy("oracle", "score", "output_tokens", None, "worst")
    (r0, r1), log = serve(
        [(0.0, 7, 5), (0.0, 7, 4)], policy, num_gpu_blocks=5, block_size=4, max_model_len=16
    )
    assert [row["preempted"] for row in log.rows[:3]] == [[], [], ["r0"]]
    assert (r0.preemptions, r1.preemptions) == (1, 0)


def test_a_request_that_preempts_itself_ends_the_step_for_those_behind_it() -> None:
    """vLLM 0.32 with victim `worst`: r0, first admitted and longest, needs a block, preempts itself, and the
    running loop stops there: r1 and r2 decode nothing in that step though the blocks would suffice.

    r0 arrives first and takes 2 blocks of 4 (7 tokens); r1 and r2 (4 tokens, 1 block each, 2 with their next)
    come a step later. Step 2: r0 computes position 7; r1, r2 prefill: 4 of 4 blocks. Step 3: r0 needs a third.
    """
    policy = Policy("oracle", "score", "output_tokens", None, "worst")
    (r0, _, _), log = serve(
        [(0.0, 7, 6), (0.5, 4, 2), (0.5, 4, 2)], policy, num_gpu_blocks=5, block_size=4, max_model_len=16
    )
    assert scheduled(log)[1] == [("r0", 1), ("r1", 4), ("r2", 4)]
    assert r0.preemptions == 1
    assert scheduled(log)[2] == [("r1", 1), ("r2", 1)]
    assert log.rows[2]["start_s"] == 2.0


def test_prefix_cache_serves_a_preempted_request_again() -> None:
    """The same as the preemption above with prefix caching: r1's first block survives step 3's one eviction.

    r1 frees blocks 1 (evicted first) and 0; r0 takes one block, so 1 block of 4 tokens is found again.
    """
    (_, r1), log = serve(
        [(0.0, 7, 4), (0.0, 7, 4)],
        num_gpu_blocks=5,
        block_size=4,
        max_model_len=16,
        enable_prefix_caching=True,
    )
    assert scheduled(log)[4] == [("r1", 5)]
    assert r1.recomputed_tokens == 4


def test_a_waiting_head_that_does_not_fit_is_not_skipped() -> None:
    """4 usable blocks of 4: r0 holds 2; r1 needs 3 and waits; r2 would fit in 1 but stands behind r1."""
    (_, r1, r2), log = serve(
        [(0.0, 8, 2), (0.0, 12, 1), (0.0, 4, 1)], num_gpu_blocks=5, block_size=4, max_model_len=16
    )
    assert [name for name, _ in scheduled(log)[0]] == ["r0"]
    assert r2.first_scheduled_s >= r1.first_scheduled_s


def test_reserve_full_isl_admits_on_the_whole_sequence() -> None:
    rows = [(0.0, 8, 4), (0.0, 12, 1)]
    tight = {"num_gpu_blocks": 5, "block_size": 4, "max_model_len": 16, "max_num_batched_tokens": 12}
    _, reserved = serve(rows, None, scheduler_reserve_full_isl=True, **tight)
    _, chunked = serve(rows, None, scheduler_reserve_full_isl=False, **tight)
    assert [name for name, _ in scheduled(reserved)[0]] == ["r0"]
    assert scheduled(chunked)[0] == [("r0", 8), ("r1", 4)]


def test_the_watermark_keeps_blocks_free_beside_running_requests() -> None:
    """20 % of 10 blocks stay free: r1 would leave 1 of 9, so it waits; alone, r0 may take 8."""
    _, log = serve([(0.0, 24, 3), (0.0, 8, 1)], num_gpu_blocks=10, block_size=4, watermark=0.2)
    assert [row["admitted"] for row in log.rows[:3]] == [["r0"], [], []]
    _, alone = serve([(0.0, 32, 1)], num_gpu_blocks=10, block_size=4, watermark=0.2)
    assert alone.rows[0]["free_blocks"] == 1


def test_the_guard_promotes_just_past_its_threshold() -> None:
    """One slot, steps of 1 s, r0 runs to t=4. r1 (long) arrived at 0, the short ones keep coming.

    With a threshold of 4 s, r1 has waited exactly 4 s at t=4, when r2 is served; at t=5 it is promoted.
    """
    policy = Policy("oracle", "score", "output_tokens", 4.0)
    rows = [(0.0, 4, 4), (0.0, 4, 9), (1.0, 4, 1), (1.0, 4, 1), (1.0, 4, 1)]
    requests, _ = serve(rows, policy, max_num_seqs=1)
    order = [r.request_id for r in sorted(requests, key=lambda r: r.first_scheduled_s)]
    assert order == ["r0", "r2", "r1", "r3", "r4"]
    assert [r.promoted for r in requests][:3] == [False, True, False]


def test_a_burst_of_2000_is_served_whole_and_in_order() -> None:
    requests, log = serve([(0.0, 16, 2)] * 2000, max_num_seqs=4, max_num_batched_tokens=64)
    starts = [request.first_scheduled_s for request in requests]
    assert starts == sorted(starts)
    assert all(request.finish_s for request in requests)
    # Four at a time, two steps each: their seats are taken until both tokens are out.
    assert log.rows[-1]["step"] == 1000


def test_async_scheduling_frees_a_seat_one_step_later() -> None:
    """One slot: r0's only token is sampled in step 1. Its seat is still taken when step 2 would be formed."""
    (r0, r1), _ = serve([(0.0, 4, 1), (0.0, 4, 1)], max_num_seqs=1, async_scheduling=True)
    assert (r0.finish_s, r1.first_scheduled_s, r1.finish_s) == (1.0, 1.0, 2.0)


def test_async_scheduling_forms_a_batch_while_the_previous_one_runs() -> None:
    """r1 arrives at 0.5, in step 1; step 2 was formed at 0, so step 3, formed at 1, is the first with r1."""
    (_, r1), log = serve([(0.0, 4, 9), (0.5, 4, 1)], async_scheduling=True)
    assert (r1.first_scheduled_s, r1.first_token_s) == (1.0, 3.0)
    assert scheduled(log)[1:3] == [[("r0", 1)], [("r0", 1), ("r1", 4)]]


@pytest.mark.parametrize(
    ("prompt", "output", "reason"),
    [(50_000, 10, "exceed max_model_len 32768"), (1700, 10, "needs 107 KV blocks, the engine has 100")],
)
def test_requests_that_can_never_run_are_rejected(prompt: int, output: int, reason: str) -> None:
    (first, second), _ = serve([(0.0, prompt, output), (0.0, 10, 1)])
    assert reason in first.rejected
    assert first.finish_s is None and second.finish_s > 0


@pytest.mark.parametrize(("max_model_len", "extra"), [(64, True), (7, False)])
def test_a_response_that_stops_by_itself_decodes_once_more_under_async_scheduling(
    max_model_len: int, extra: bool
) -> None:
    """Step 4 is formed while step 3 samples the stop token, unless max_model_len says that 3 must be the last."""
    workload = Workload(["r0"], [0.0], [4], [3], stops=[True])
    log = StepLog(detail=True)
    config = engine_config(async_scheduling=True, max_model_len=max_model_len)
    outcome = run(workload, config, parse_policy("fcfs"), observer=log)
    assert scheduled(log) == [[("r0", 4)], [("r0", 1)], [("r0", 1)], *([[("r0", 1)]] if extra else [])]
    assert list(outcome.times["finish_s"]) == [3.0]
    assert outcome.engine.gaps.frame()["tokens"].sum() == 2


def test_without_async_scheduling_a_stop_is_known_in_time() -> None:
    log = StepLog(detail=True)
    run(Workload(["r0"], [0.0], [4], [3], stops=[True]), engine_config(), parse_policy("fcfs"), observer=log)
    assert len(log.rows) == 3
