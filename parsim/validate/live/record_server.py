"""Recording natural response lengths from a running server instead of an engine in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parsim.errors import UserError
from parsim.validate.live.client import list_models
from parsim.validate.live.record import Prompt, Recording, resume


def record_from_server(
    prompts: list[Prompt], out: Path, recording: Recording, url: str, advance: Callable[[int, int], None]
) -> int:
    """Ask what `out` lacks from `url` (`/v1/chat/completions`); every response is appended as it ends.

    Raises:
        UserError: the server cannot be reached, or refuses a request; what was recorded by then is kept.
    """
    stamp = recording.stamp()
    done = resume(out, stamp)
    work = [(p, s) for s in range(recording.samples) for p in prompts if (p.id, s) not in done]
    out.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_ask(work, out, recording, stamp, url.rstrip("/").removesuffix("/v1"), advance))
    return len(work)


async def _ask(
    work: list[tuple[Prompt, int]],
    out: Path,
    recording: Recording,
    stamp: dict[str, Any],
    url: str,
    advance: Callable[[int, int], None],
) -> None:
    import aiohttp

    slots = asyncio.Semaphore(recording.concurrency)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3600)) as session:
        served = await list_models(session, url)
        model = recording.model if recording.model in served else served[0]
        with out.open("a", encoding="utf-8") as lines:

            async def one(prompt: Prompt, sample: int) -> None:
                body = {
                    "model": model,
                    "messages": [{"role": "user", "content": prompt.text}],
                    "temperature": recording.temperature,
                    "max_tokens": recording.max_tokens,
                }
                async with slots, session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    if answer.status != 200:
                        text = (await answer.text())[:200]
                        raise UserError(f"{url}: HTTP {answer.status} for prompt {prompt.id}: {text}")
                    result = await answer.json()
                reason, usage = result["choices"][0]["finish_reason"], result["usage"]
                row = {
                    "id": prompt.id,
                    "sample": sample,
                    "prompt": prompt.text,
                    "prompt_tokens": usage["prompt_tokens"],
                    "output_tokens": usage["completion_tokens"],
                    "finish_reason": reason,
                    "censored": reason == "length",
                    **stamp,
                }
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                lines.flush()
                advance(1, usage["completion_tokens"])

            try:
                async with asyncio.TaskGroup() as group:
                    for prompt, sample in work:
                        group.create_task(one(prompt, sample))
            except* aiohttp.ClientError as errors:
                first = errors.exceptions[0]
                raise UserError(
                    f"{url}: {type(first).__name__}: {first}; what was recorded is kept"
                ) from first
            except* UserError as errors:
                raise errors.exceptions[0] from None
