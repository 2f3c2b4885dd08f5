"""What `ParsScheduler` writes down of each request, and the times it must note for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vllm.v1.request import Request

from parsim.scheduler.recorder import TraceRecorder
from parsim.scheduler.vllm_request import app_of, ending_of


class RequestLog:
    """Rows of the trace's schema: when a request arrived, was first served, gave its first and last token, and why it
    ended (`stop`, `length`, `abort`), with its scores; seconds are those of the scheduler's clock.

    Args:
        recorder: where rows go.
        clock: seconds now.
        block_size: tokens a block of the engine's prefix cache.
        with_tokens: also the prompt's token ids.
    """

    def __init__(
        self, recorder: TraceRecorder, clock: Callable[[], float], block_size: int, with_tokens: bool
    ) -> None:
        self.recorder = recorder
        self._clock = clock
        self._block_size = block_size
        self._with_tokens = with_tokens
        self._scheduled: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._awaited: dict[str, Request] = {}

    def admitted(self, request: Request) -> None:
        """The request leaves the queue to be served; only the first time counts."""
        if request.request_id not in self._scheduled:
            self._scheduled[request.request_id] = self._clock()
            self._awaited[request.request_id] = request

    def stepped(self) -> None:
        """A step's output is in: who has got a first token?"""
        if not self._awaited:
            return
        now_s = self._clock()
        for request_id, request in list(self._awaited.items()):
            if request.num_output_tokens:
                del self._awaited[request_id]
                self._first[request_id] = now_s

    def finished(self, request: Request, scores: dict[str, float | None]) -> None:
        """Write the request down; one without a token is not there to be replayed, and is left out."""
        request_id = request.request_id
        first_s = self._first.pop(request_id, None)
        scheduled_s = self._scheduled.pop(request_id, None)
        if self._awaited.pop(request_id, None) is not None and request.num_output_tokens:
            first_s = self._clock()
        tokens, stopped = ending_of(request)
        if not tokens:
            return
        prompt = request.prompt_token_ids or ()
        row: dict[str, Any] = {
            "request_id": request_id,
            "arrival_s": request.arrival_time,
            "prompt_tokens": request.num_prompt_tokens,
            "output_tokens": tokens,
            "stop": {True: "stop", False: "length", None: "abort"}[stopped],
            "max_tokens": request.max_tokens,
            "client_id": app_of(request) or None,
            "first_scheduled_s": scheduled_s,
            "first_token_s": first_s,
            "finish_s": self._clock(),
            **{f"score.{name}": score for name, score in scores.items()},
            "prefix_hashes": self.recorder.prefix_hashes(prompt, request.block_hashes, self._block_size),
            "hash_block_size": self.recorder.hash_block_size,
        }
        if self._with_tokens:
            row["prompt_token_ids"] = list(prompt)
        self.recorder.write(row)

    def close(self) -> None:
        """Write what is left, and stop."""
        self.recorder.close()
