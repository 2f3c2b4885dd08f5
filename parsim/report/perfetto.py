"""One run as a trace for ui.perfetto.dev or chrome://tracing.

The file is the Trace Event Format (JSON): a track a request with its wait and its run, a track of engine steps, and
counters of waiting and running requests and of free KV blocks. Times are in microseconds from the start of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.files import replacing

if TYPE_CHECKING:
    import polars as pl

    from parsim.simulation import Run

ENGINE, REQUESTS = 1, 2


def write_perfetto(run: Run, path: str | Path) -> None:
    """Write `run` to `path`, which Perfetto opens. Steps are in it if the run logged them.

    Raises:
        UserError: `path` cannot be written.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        out.write(",\n".join(json.dumps(event, separators=(",", ":")) for event in events(run)))
        out.write("\n]}\n")


def events(run: Run) -> Iterator[dict[str, Any]]:
    """The events of a run: names of the tracks, requests in slots, steps and counters."""
    yield _name("process_name", ENGINE, 0, "engine")
    yield _name(
        "process_name", REQUESTS, 0, f"requests under {run.metadata.get('policy_label', 'the policy')}"
    )
    yield from _requests(run.requests)
    if run.steps is not None:
        yield from _steps(run.steps)


def _requests(requests: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A wait and a run a request. A track holds one request after the other, so that tracks are few: a request
    takes the lowest track that is free at its arrival."""
    import heapq

    import polars as pl

    done = requests.filter(pl.col("finish_s").is_not_null()).sort("arrival_s", maintain_order=True)
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for row in done.iter_rows(named=True):
        while busy and busy[0][0] <= row["arrival_s"]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track = heapq.heappop(free) if free else len(busy) + 1
        heapq.heappush(busy, (row["finish_s"], track))
        facts = {
            k: row[k]
            for k in (
                "request_id",
                "prompt_tokens",
                "output_tokens",
                "score",
                "preemptions",
                "recomputed_tokens",
                "promoted",
            )
            if row[k] is not None
        }
        phases = (
            ("wait", row["arrival_s"], row["first_scheduled_s"]),
            ("prefill", row["first_scheduled_s"], row["first_token_s"]),
            ("decode", row["first_token_s"], row["finish_s"]),
        )
        for phase, start, end in phases:
            if end > start:
                yield _slice(
                    f"{phase} {row['request_id']}", phase, REQUESTS, track, start, end - start, facts
                )


def _steps(steps: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A slice and the counters of every step."""
    columns = ("prefill_tokens", "decode_seqs", "kv_tokens", "admitted", "preempted")
    for row in steps.iter_rows(named=True):
        facts = {name: row[name] for name in columns if name in row}
        name = (
            "prefill + decode"
            if row["prefill_tokens"] and row["decode_seqs"]
            else "prefill"
            if row["prefill_tokens"]
            else "decode"
        )
        yield _slice(name, "step", ENGINE, 1, row["start_s"], row["duration_s"], facts)
        at = row["start_s"] * 1e6
        yield {
            "ph": "C",
            "name": "requests",
            "pid": ENGINE,
            "ts": at,
            "args": {"waiting": row["waiting"], "running": row["running"]},
        }
        yield {
            "ph": "C",
            "name": "free KV blocks",
            "pid": ENGINE,
            "ts": at,
            "args": {"blocks": row["free_blocks"]},
        }


def _slice(
    name: str, kind: str, process: int, track: int, start_s: float, seconds: float, facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": process,
        "tid": track,
        "ts": start_s * 1e6,
        "dur": seconds * 1e6,
        "args": facts,
    }


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
