"""Turns of a conversation: the next one finds the blocks of the last one's prompt and response."""

from __future__ import annotations

import polars as pl
import pytest

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime
from parsim.simulation import simulate
from parsim.traces import Trace

ENGINE = EngineConfig(
    num_gpu_blocks=201,
    block_size=16,
    max_num_seqs=8,
    max_num_batched_tokens=512,
    step_time=StepTime(base_s=1 / 64),
)


def conversation(sessions: list[str | None] | None, second: list[int], second_tokens: int = 200) -> Trace:
    """Two turns: 70 tokens in and 90 out, then a prompt that begins with four blocks of the first."""
    columns = {
        "request_id": ["a", "b"],
        "arrival_s": [0.0, 60.0],
        "prompt_tokens": [70, second_tokens],
        "output_tokens": [90, 5],
        "prefix_hashes": [[1, 2, 3, 4], second],
        **({"session_id": sessions} if sessions else {}),
    }
    return Trace(pl.DataFrame(columns), {"hash_block_size": "16"})


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize(
    ("sessions", "second", "tokens", "cached"),
    [
        # 70 + 90 - 1 = 159 tokens were computed and known: 9 blocks of 16, of the 12 that the prompt of 200 fills.
        (["s", "s"], list(range(1, 13)), 200, 9 * 16),
        # No session, another session, or a prompt too short to repeat the response: its own prompt's 4 blocks.
        (None, list(range(1, 13)), 200, 4 * 16),
        (["s", "t"], list(range(1, 13)), 200, 4 * 16),
        ([None, None], list(range(1, 13)), 200, 4 * 16),
        (["s", "s"], list(range(1, 10)), 150, 4 * 16),
        # The next turn changes the prompt: only what both have in common.
        (["s", "s"], [1, 2, *range(20, 30)], 200, 2 * 16),
    ],
)
def test_what_the_next_turn_finds(
    async_scheduling: bool, sessions: list[str | None] | None, second: list[int], tokens: int, cached: int
) -> None:
    engine = ENGINE.model_copy(update={"async_scheduling": async_scheduling})
    run = simulate(conversation(sessions, second, tokens), engine, "fcfs")
    assert run.requests["cached_tokens"].to_list() == [0, cached]
