"""The HTTP client against a server written here: streaming, scores, cancellations, timeouts, and a server that dies."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("aiohttp")
from aiohttp import web

from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES
from parsim.validate.live.client import Target, replay
from parsim.validate.live.serving import Job
from parsim.validate.tiers.server_pairs import PolicyRun, failures, keep

GAP_S = 0.01


class FakeServer:
    """Streams one chunk every GAP_S; dies for good after `dies_after` requests have been accepted."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self.dies_after = dies_after
        self.closed = 0

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "fake"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        if body["max_tokens"] == 666:
            return web.json_response({"error": "no"}, status=400)
        if self.dies_after is not None and len(self.seen) > self.dies_after:
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            for i in range(body["max_tokens"]):
                await asyncio.sleep(GAP_S)
                reason = "length" if i == body["max_tokens"] - 1 else None
                await self._send(answer, {"choices": [{"text": "x", "finish_reason": reason}]})
            await self._send(answer, {"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
            await answer.write(b"data: [DONE]\n\n")
        except ConnectionResetError:
            self.closed += 1
        return answer

    @staticmethod
    async def _send(answer: web.StreamResponse, event: dict[str, Any]) -> None:
        await answer.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextmanager
def running(fake: FakeServer) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/v1/models", fake.models)
    app.router.add_post("/v1/completions", fake.completions)
    runner = web.AppRunner(app)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def jobs(n: int = 6, tokens: int = 5) -> list[Job]:
    return [Job(f"r{i}", 0.02 * i, [7, 8, 9], tokens, float(i) if i % 2 else None) for i in range(n)]


def test_streams_are_timed_and_scores_are_sent() -> None:
    fake = FakeServer()
    with running(fake) as url:
        frame = replay(jobs(), Target(url))
    assert frame["status"].to_list() == ["ok"] * 6
    assert frame["output_tokens"].to_list() == [5] * 6
    assert (frame["sent_s"] >= frame["arrival_s"]).all()
    ttft, decode = frame["first_token_s"] - frame["sent_s"], frame["finish_s"] - frame["first_token_s"]
    assert ttft.min() >= GAP_S * 0.9  # type: ignore[operator]
    assert decode.min() >= 4 * GAP_S * 0.9  # type: ignore[operator]
    assert frame["itl_s"].list.len().to_list() == [4] * 6
    scores = {body["vllm_xargs"]["pars_score"] for body in fake.seen if "vllm_xargs" in body}
    assert scores == {1.0, 3.0, 5.0}
    assert all(body["ignore_eos"] and body["prompt"] == [7, 8, 9] for body in fake.seen)


def test_cancelled_requests_are_cut_off_and_counted() -> None:
    fake = FakeServer()
    with running(fake) as url:
        frame = replay(jobs(12, tokens=40), Target(url), cancel_share=0.5, seed=3)
    cut = frame.filter(pl.col("status") == "cancelled")
    assert 2 <= cut.height <= 10
    assert (cut["output_tokens"] < 40).all()
    assert fake.closed >= 1
    run = PolicyRun(POLICIES["fcfs"], frame)
    assert run.lost == 0
    assert failures(run) == []
    assert run.loading.height == 12


def test_timeouts_and_refusals_are_counted_not_raised() -> None:
    fake = FakeServer()
    with running(fake) as url:
        mixed = [Job("slow", 0.0, [1], 400), Job("bad", 0.0, [1], 666), Job("fine", 0.0, [1], 2)]
        frame = replay(mixed, Target(url, timeout_s=0.5))
    assert frame["status"].to_list() == ["timeout", "failed", "ok"]
    assert "HTTP 400" in frame["error"][1]
    assert len(failures(PolicyRun(POLICIES["fcfs"], frame))) == 2


def test_a_server_that_dies_midway_leaves_partial_results(tmp_path: Path) -> None:
    fake = FakeServer(dies_after=5)
    many = [Job(f"r{i}", 0.05 * i, [1], 2) for i in range(30)]
    with running(fake) as url:
        frame = replay(many, Target(url))
    statuses = frame["status"].to_list()
    assert statuses[:5] == ["ok"] * 5
    assert set(statuses[5:]) == {"failed", "not sent"}
    assert statuses[-1] == "not sent"
    run = PolicyRun(POLICIES["fcfs"], frame)
    assert run.lost == 25
    kept = pl.read_parquet(keep(run, tmp_path))
    assert kept["finish_s"].null_count() == 25


def test_no_server_is_one_clear_error() -> None:
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:9: no OpenAI-compatible server"):
        replay(jobs(1), Target("http://127.0.0.1:9"))
