"""Recording natural lengths from a server: what is asked, what is written, and what a failure leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
from aiohttp import web

from parsim.errors import UserError
from parsim.validate.live.record import Prompt, Recording
from parsim.validate.live.record_server import record_from_server

PROMPTS = [Prompt(str(i), "word " * (i + 1)) for i in range(5)]


@pytest.fixture
def url() -> Iterator[str]:
    """A server whose answers are three times as long as the prompt, cut at max_tokens; it refuses the word `bad`."""

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "served"}]})

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        words = body["messages"][0]["content"].split()
        if words == ["bad"]:
            return web.json_response({"error": "no"}, status=422)
        length = min(3 * len(words), body["max_tokens"])
        reason = "length" if length == body["max_tokens"] else "stop"
        usage = {"prompt_tokens": len(words), "completion_tokens": length}
        return web.json_response({"choices": [{"finish_reason": reason}], "usage": usage})

    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", chat)
    runner = web.AppRunner(app)

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{port}/v1"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


def test_lengths_and_censoring_come_from_the_server(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    recording = Recording("served", samples=2, max_tokens=9)
    seen: list[int] = []
    assert record_from_server(PROMPTS[:2], out, recording, url, lambda n, tokens: seen.append(tokens)) == 4
    assert record_from_server(PROMPTS, out, recording, url, lambda n, tokens: seen.append(tokens)) == 6
    rows = {(row["id"], row["sample"]): row for row in map(json.loads, out.read_text().splitlines())}
    assert len(rows) == 10
    assert [rows[str(i), 0]["output_tokens"] for i in range(5)] == [3, 6, 9, 9, 9]
    assert [rows[str(i), 1]["censored"] for i in range(5)] == [False, False, True, True, True]
    assert sorted(seen) == [3, 3, 6, 6, 9, 9, 9, 9, 9, 9]


def test_a_refusal_is_one_clear_error_and_what_came_before_is_kept(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    recording = Recording("served", concurrency=1)
    with pytest.raises(UserError, match=r"HTTP 422 for prompt bad"):
        record_from_server([PROMPTS[0], Prompt("bad", "bad")], out, recording, url, lambda n, tokens: None)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["0"]
