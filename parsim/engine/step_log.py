"""A record of every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.request import EngineRequest

if TYPE_CHECKING:
    import polars as pl


class StepLog:
    """Collects one row a step; empty batches are left out.

    Columns: step, formed_s, start_s, duration_s, prefill_tokens, decode_seqs, kv_tokens, attention_pairs (totals of
    `StepTime.seconds`), free_blocks, running, waiting (after the batch was formed), admitted and preempted
    (request ids, in order); with `detail` also cached_tokens (of each admitted request) and scheduled (request
    id and tokens, in order).
    """

    def __init__(self, detail: bool = False) -> None:
        self.detail = detail
        self.rows: list[dict[str, Any]] = []

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        """Record a batch that has just been formed."""
        if not batch:
            return
        row: dict[str, Any] = {
            "step": batch.step,
            "formed_s": batch.formed_s,
            "start_s": batch.start_s,
            "duration_s": batch.end_s - batch.start_s,
            "prefill_tokens": batch.prefill_tokens,
            "decode_seqs": batch.decode_seqs,
            "kv_tokens": batch.kv_tokens,
            "attention_pairs": batch.attention_pairs,
            "free_blocks": former.cache.free,
            "running": len(former.running),
            "waiting": len(former.queue),
            "admitted": [request.request_id for request, _ in batch.admitted],
            "preempted": [request.request_id for request in batch.preempted],
        }
        if self.detail:
            row["cached_tokens"] = [cached for _, cached in batch.admitted]
            row["scheduled"] = self._scheduled(batch, former)
        self.rows.append(row)

    def frame(self) -> pl.DataFrame:
        """The rows as a table."""
        import polars as pl

        schema: dict[str, Any] = {
            "step": pl.Int64,
            **dict.fromkeys(("formed_s", "start_s", "duration_s"), pl.Float64),
            **dict.fromkeys(
                (
                    "prefill_tokens",
                    "decode_seqs",
                    "kv_tokens",
                    "attention_pairs",
                    "free_blocks",
                    "running",
                    "waiting",
                ),
                pl.Int64,
            ),
            "admitted": pl.List(pl.String),
            "preempted": pl.List(pl.String),
        }
        if self.detail:
            schema["cached_tokens"] = pl.List(pl.Int64)
            schema["scheduled"] = pl.List(pl.Struct({"request_id": pl.String, "tokens": pl.Int64}))
        return pl.DataFrame(self.rows, schema=schema, orient="row")

    @staticmethod
    def _scheduled(batch: Batch, former: BatchFormer) -> list[dict[str, Any]]:
        def tokens(request: EngineRequest) -> int:
            chunk = batch.chunks.get(request)
            if chunk is not None:
                return chunk
            return int(
                request.joined < batch.step <= request.last_step + request.overruns
                and request.idle_to != batch.step
            )

        given = [(request.request_id, tokens(request)) for request in former.running]
        return [{"request_id": name, "tokens": count} for name, count in given if count]
