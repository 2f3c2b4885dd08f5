"""An open-loop client of an OpenAI-compatible vLLM server: streaming, scores, timeouts and failures counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from parsim.errors import UserError
from parsim.scheduler.settings import SCORE_KEY
from parsim.validate.live.serving import Job, Lengths

Status = Literal["ok", "cancelled", "timeout", "failed", "not sent"]

GIVE_UP_AFTER = 8
"""So many failures to connect in a row, and the server is taken for dead: nothing more is sent."""


@dataclass(frozen=True)
class Target:
    """A server and how it is asked.

    Attributes:
        url: up to and without `/v1`.
        model: as the server names it; the first that it lists if empty.
        timeout_s: a request that has not ended by then counts as a timeout.
        headers: sent along, for example an authorisation.
    """

    url: str
    model: str = ""
    timeout_s: float = 600.0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class _Record:
    """One request as the client saw it; seconds since the first was due."""

    job: Job
    sent_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None
    output_tokens: int = 0
    gaps_s: list[float] = field(default_factory=list)
    finish_reason: str = ""
    status: Status = "not sent"
    error: str = ""


def replay(
    jobs: Sequence[Job],
    target: Target,
    *,
    lengths: Lengths = "forced",
    temperature: float = 0.0,
    cancel_share: float = 0.0,
    concurrency: int | None = None,
    seed: int = 0,
    advance: Callable[[int], None] = lambda finished: None,
) -> pl.DataFrame:
    """Send every job at its `arrival_s` and wait for all; one row a request, in order, whatever became of it.

    Args:
        cancel_share: share of the requests that are cut off by the client midway, drawn by `seed`.
        concurrency: the most requests in flight (closed loop); None for none: arrivals alone decide.
        advance: called as each request ends.

    Returns:
        Columns: request_id, arrival_s (due), sent_s, first_token_s, finish_s, prompt_tokens, output_tokens,
        itl_s (list: gaps between chunks), status, finish_reason, error, score, and the columns that a measurement
        needs (first_scheduled_s is null: a client cannot see it).

    Raises:
        UserError: the server cannot be reached at all, or lists no model.
    """
    return asyncio.run(_replay(jobs, target, lengths, temperature, cancel_share, concurrency, seed, advance))


async def _replay(
    jobs: Sequence[Job],
    target: Target,
    lengths: Lengths,
    temperature: float,
    cancel_share: float,
    concurrency: int | None,
    seed: int,
    advance: Callable[[int], None],
) -> pl.DataFrame:
    import aiohttp

    rng = np.random.default_rng(seed)
    cut = [
        int(rng.integers(1, max(2, j.output_tokens))) if rng.random() < cancel_share else None for j in jobs
    ]
    records = [_Record(job) for job in jobs]
    refused = 0
    slots = asyncio.Semaphore(concurrency or len(jobs) or 1)
    timeout = aiohttp.ClientTimeout(total=target.timeout_s)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=target.headers) as session:
        model = target.model or (await list_models(session, target.url))[0]
        start = time.perf_counter()

        async def one(record: _Record, stop_after: int | None) -> None:
            nonlocal refused
            job = record.job
            await asyncio.sleep(max(0.0, job.arrival_s - (time.perf_counter() - start)))
            async with slots:
                if refused >= GIVE_UP_AFTER:
                    record.error = "the server had stopped answering"
                    return
                record.sent_s = time.perf_counter() - start
                try:
                    await _stream(session, target, model, record, lengths, temperature, stop_after, start)
                    refused = 0
                except TimeoutError:
                    record.status, record.error = "timeout", f"no end within {target.timeout_s:g} s"
                except aiohttp.ClientError as error:
                    record.status, record.error = "failed", f"{type(error).__name__}: {error}"
                    refused += isinstance(error, aiohttp.ClientConnectionError)
            advance(1)

        await asyncio.gather(*(one(r, c) for r, c in zip(records, cut, strict=True)))
    return _frame(records)


async def list_models(session: Any, url: str) -> list[str]:
    """Names of the models that the server serves."""
    import aiohttp

    try:
        async with session.get(f"{url}/v1/models") as answer:
            answer.raise_for_status()
            names = [str(entry["id"]) for entry in (await answer.json())["data"]]
    except (aiohttp.ClientError, TimeoutError, KeyError, json.JSONDecodeError) as error:
        raise UserError(
            f"{url}: no OpenAI-compatible server answers there ({type(error).__name__}); start one"
        ) from error
    if not names:
        raise UserError(f"{url}: the server lists no model")
    return names


async def _stream(
    session: Any,
    target: Target,
    model: str,
    record: _Record,
    lengths: Lengths,
    temperature: float,
    stop_after: int | None,
    start: float,
) -> None:
    job = record.job
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(job.prompt_token_ids),
        "max_tokens": job.output_tokens,
        "temperature": temperature,
        "ignore_eos": lengths == "forced",
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if job.score is not None:
        body["vllm_xargs"] = {SCORE_KEY: job.score}
    last = chunks = 0
    async with session.post(f"{target.url}/v1/completions", json=body) as answer:
        if answer.status != 200:
            record.status = "failed"
            record.error = f"HTTP {answer.status}: {(await answer.text())[:200]}"
            return
        async for line in answer.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                break
            event = json.loads(data)
            usage = event.get("usage")
            if usage:
                record.output_tokens = int(usage["completion_tokens"])
            if not event.get("choices"):
                continue
            now = time.perf_counter() - start
            record.finish_reason = event["choices"][0].get("finish_reason") or record.finish_reason
            if record.first_token_s is None:
                record.first_token_s = now
            else:
                record.gaps_s.append(now - last)
            last, chunks = now, chunks + 1  # type: ignore[assignment]
            record.finish_s = now
            if stop_after is not None and chunks >= stop_after:
                record.status, record.output_tokens = "cancelled", chunks
                answer.close()
                return
    if record.first_token_s is None or not record.finish_reason:
        record.status, record.error = "failed", "the stream ended before the response did"
        record.output_tokens = chunks
    else:
        record.status = "ok"
        record.output_tokens = record.output_tokens or chunks


def _frame(records: Sequence[_Record]) -> pl.DataFrame:
    floats = {
        name: pl.Float64 for name in ("sent_s", "first_token_s", "finish_s", "first_scheduled_s", "score")
    }
    return pl.DataFrame(
        {
            "request_id": [r.job.request_id for r in records],
            "arrival_s": [float(r.job.arrival_s) for r in records],
            "sent_s": [r.sent_s for r in records],
            "first_scheduled_s": [None] * len(records),
            "first_token_s": [r.first_token_s for r in records],
            "finish_s": [r.finish_s for r in records],
            "prompt_tokens": [len(r.job.prompt_token_ids) for r in records],
            "output_tokens": [r.output_tokens for r in records],
            "itl_s": [r.gaps_s for r in records],
            "status": [r.status for r in records],
            "finish_reason": [r.finish_reason for r in records],
            "error": [r.error for r in records],
            "score": [r.job.score for r in records],
        },
        schema_overrides={**floats, "itl_s": pl.List(pl.Float64)},
    )
