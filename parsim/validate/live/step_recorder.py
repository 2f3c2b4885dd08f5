"""What every step of a real vLLM engine contained and how long it took."""

from __future__ import annotations

import time
from typing import Any

import polars as pl

from parsim.validate.live.live_engine import scheduler_of

SCHEMA: dict[str, Any] = {
    "step": pl.Int64,
    "start_s": pl.Float64,
    "wall_s": pl.Float64,
    "cpu_s": pl.Float64,
    "prefill_tokens": pl.Int64,
    "decode_seqs": pl.Int64,
    "kv_tokens": pl.Int64,
    "attention_pairs": pl.Int64,
    "running": pl.Int64,
    "waiting": pl.Int64,
    "free_blocks": pl.Int64,
    "preempted": pl.Int64,
}


class StepRecorder:
    """Watches an in-process engine's `schedule()`; steps become rows in the totals of `StepTime.seconds`.

    Attributes:
        first_scheduled_s, preemptions, cached_tokens: by vLLM's request id, since the last `reset`.

    With async scheduling a call of `step()` forms one batch and awaits an earlier one: its time is then the time
    between two batches, which is the same in a steady state.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._scheduler = scheduler_of(engine)
        self._schedule = self._scheduler.schedule
        self._scheduler.schedule = self._watched
        self._caught_up: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded."""
        self.rows: list[tuple[Any, ...]] = []
        self.first_scheduled_s: dict[str, float] = {}
        self.preemptions: dict[str, int] = {}
        self.cached_tokens: dict[str, int] = {}
        self._caught_up.clear()
        self._totals: tuple[int, ...] | None = None
        self.begin(0.0)

    def close(self) -> None:
        """Give the scheduler its own method back."""
        self._scheduler.schedule = self._schedule

    def begin(self, now_s: float) -> None:
        """A step's time starts here, at `now_s` of the replay's clock."""
        self._now_s = now_s
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def step(self) -> list[Any]:
        """One `engine.step()`; returns its outputs."""
        self._totals = None
        outputs: list[Any] = self._engine.step()
        return outputs

    def end(self) -> None:
        """The step's outputs have been dealt with: a row, if it had tokens."""
        if self._totals is not None:
            wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
            self.rows.append((len(self.rows), self._now_s, wall, cpu, *self._totals))

    def frame(self) -> pl.DataFrame:
        """The rows as a table: step, start_s, wall_s, cpu_s, the totals, running, waiting, free_blocks, preempted."""
        return pl.DataFrame(self.rows, schema=SCHEMA, orient="row")

    def _watched(self, *args: Any, **options: Any) -> Any:
        output = self._schedule(*args, **options)
        scheduler = self._scheduler
        gone = output.preempted_req_ids or ()
        for request_id in gone:
            self.preemptions[request_id] = self.preemptions.get(request_id, 0) + 1
        self._caught_up.difference_update(gone)
        prefill = decode = kv = pairs = 0
        for request_id, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[request_id]
            before = request.num_computed_tokens - count
            if request_id in self._caught_up:
                decode += 1
                kv += before
                continue
            if request_id not in self.first_scheduled_s:
                self.first_scheduled_s[request_id] = self._now_s
                self.cached_tokens[request_id] = before
            prefill += count
            pairs += count * before + count * (count + 1) // 2
            if request.num_computed_tokens >= request.num_tokens:
                self._caught_up.add(request_id)
        if output.total_num_scheduled_tokens:
            pool = scheduler.kv_cache_manager.block_pool
            self._totals = (
                prefill,
                decode,
                kv,
                pairs,
                len(scheduler.running),
                len(scheduler.waiting),
                pool.get_num_free_blocks(),
                len(gone),
            )
        self._caught_up.difference_update(output.finished_req_ids)
        return output
