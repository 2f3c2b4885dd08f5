"""A predictor at work beside vLLM's scheduler: on its own thread, in batches, with a bounded wait.

Name it to the scheduler as `"scorer": "parsim.predictor.scoring.scorer:create"` (see `parsim.scheduler.settings`);
which predictor is taken from the environment variable `PARSIM_PREDICTOR`, a shipped name or a folder, `pars`
by default.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from parsim.engine.scoring_cost import MAX_BATCH, MAX_WAIT_S
from parsim.scheduler.features import Features
from parsim.scheduler.settings import PREDICTOR_VARIABLE

log = logging.getLogger("vllm.parsim")

CACHE_SIZE = 65_536
"""Scores kept, the least recently used forgotten first; each under a digest, so that long prompts take no memory."""

Prompt: TypeAlias = "str | array[int]"
"""A prompt while it waits: text or token ids."""


@dataclass
class ScorerStats:
    """Counters of a running scorer.

    Attributes:
        submitted: requests asked for.
        scored: answered by the predictor.
        cached: answered from the cache.
        expired: given up after `max_wait_s`.
        batches: calls of the predictor.
        busy_s: wall seconds inside the predictor.
        cpu_s: CPU seconds of the worker's thread.
        failures: batches on which the predictor failed; their requests stay unscored.
        undecodable: requests whose token ids could not be turned into text; they stay unscored, those of the same batch
            do not.
    """

    submitted: int = 0
    scored: int = 0
    cached: int = 0
    expired: int = 0
    batches: int = 0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    failures: int = 0
    undecodable: int = 0


class BatchScorer:
    """Scores prompts on a worker thread; `submit` and `poll` return at once, from any thread.

    What was submitted since the worker's last batch forms the next one, the newest first: under more prompts than
    it can score, the late answers are those that no longer matter. Scores are cached by prompt. Nothing grows without
    bound, whatever the predictor does: prompts are held for `max_wait_s` at most.
    `parsim.engine.scorer.VirtualScorer` is the same in virtual time.
    """

    def __init__(
        self,
        score: Callable[[Sequence[str]], Sequence[float]],
        decode: Callable[[Sequence[int]], str] | None = None,
        *,
        max_batch: int = MAX_BATCH,
        max_wait_s: float = MAX_WAIT_S,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        """Start the worker.

        Args:
            score: texts -> one score each.
            decode: token ids -> text; needed where prompts come as token ids.
            max_batch: prompts a call of `score` at most.
            max_wait_s: seconds after which a request that is still waiting for the worker is given up.
            cache_size: scores kept.
        """
        self._score, self._decode = score, decode
        self._max_batch, self._max_wait_s, self._cache_size = max_batch, max_wait_s, cache_size
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        # request, digest, prompt, submitted at
        self._queue: deque[tuple[str, bytes, Prompt, float]] = deque()
        self._ready: dict[str, float] = {}
        self._cache: OrderedDict[bytes, float] = OrderedDict()
        self._closed = False
        self.stats = ScorerStats()
        self._worker = threading.Thread(target=self._work, name="parsim-scorer", daemon=True)
        self._worker.start()

    def submit(self, request_id: str, features: Features) -> None:
        """Ask for the score of a request by its prompt: its text where that is at hand, else its token ids."""
        prompt = features.prompt_token_ids if features.text is None else features.text
        try:
            held = prompt if isinstance(prompt, str) else array("q", prompt)
        except (TypeError, OverflowError) as error:  # no ids at all, or none that any tokenizer has
            with self._lock:
                self.stats.submitted += 1
                self._count_undecodable(error)
            return
        key = _digest(held)
        with self._arrived:
            self.stats.submitted += 1
            if key in self._cache:
                self._cache.move_to_end(key)
                self.stats.cached += 1
                self._ready[request_id] = self._cache[key]
            elif not self._closed:
                self._drop_expired()
                self._queue.append((request_id, key, held, time.monotonic()))
                self._arrived.notify()

    def poll(self) -> dict[str, float]:
        """Scores that became ready since the last call, by request id."""
        with self._lock:
            ready, self._ready = self._ready, {}
            return ready

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """Nothing is learned from it."""

    def close(self) -> None:
        """Stop the worker after its present batch; what still waits is dropped."""
        with self._arrived:
            self._closed = True
            self._queue.clear()
            self._arrived.notify()
        self._worker.join(timeout=5.0)

    def _work(self) -> None:
        while True:
            with self._arrived:
                while not self._queue and not self._closed:
                    self._arrived.wait()
                if self._closed:
                    return
                batch = self._take()
            if batch:
                self._run(batch)

    def _take(self) -> list[tuple[str, bytes, Prompt]]:
        """The next batch, without those that waited too long. Called with the lock held."""
        self._drop_expired()
        newest = (self._queue.pop() for _ in range(min(self._max_batch, len(self._queue))))
        return [(request_id, key, prompt) for request_id, key, prompt, _ in newest]

    def _drop_expired(self) -> None:
        """Give up the requests that waited too long. Called with the lock held."""
        oldest = time.monotonic() - self._max_wait_s
        while self._queue and self._queue[0][3] < oldest:
            self._queue.popleft()
            self.stats.expired += 1

    def _run(self, batch: list[tuple[str, bytes, Prompt]]) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        texts = self._texts(batch)
        if not texts:
            return
        try:
            found = self._score([*texts.values()])
            scores = dict(zip(texts, map(float, found), strict=True))
        except Exception as error:
            scores = {}
            if not self.stats.failures:
                log.warning(
                    "scoring failed, the requests stay unscored (further failures are counted): %r", error
                )
        with self._lock:
            self.stats.batches += 1
            self.stats.failures += not scores
            self.stats.busy_s += time.perf_counter() - wall
            self.stats.cpu_s += time.thread_time() - cpu
            for request_id, key, _ in batch:
                if key in scores:
                    self.stats.scored += 1
                    self._ready[request_id] = scores[key]
            self._cache.update(scores)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    def _texts(self, batch: list[tuple[str, bytes, Prompt]]) -> dict[bytes, str]:
        """The text of each distinct prompt by its digest, without those that cannot be decoded."""
        texts: dict[bytes, str] = {}
        for _, key, prompt in batch:
            if key not in texts:
                try:
                    texts[key] = self._text(prompt)
                except Exception as error:
                    with self._lock:
                        self._count_undecodable(error)
        return texts

    def _count_undecodable(self, error: Exception) -> None:
        """Called with the lock held."""
        self.stats.undecodable += 1
        if self.stats.undecodable == 1:
            log.warning(
                "a prompt's token ids cannot be decoded, the request stays unscored (further ones are counted): %r",
                error,
            )

    def _text(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        if self._decode is None:
            raise ValueError("the prompt came as token ids and there is no tokenizer to decode them")
        return self._decode(prompt)


def _digest(prompt: Prompt) -> bytes:
    """16 bytes that stand for a prompt; text and token ids never share them."""
    if isinstance(prompt, str):
        return hashlib.blake2b(
            prompt.encode("utf-8", "surrogatepass"), digest_size=16, person=b"text"
        ).digest()
    return hashlib.blake2b(prompt, digest_size=16, person=b"ids").digest()


def create(model: str, *, predictor: str | None = None) -> BatchScorer:
    """A scorer for requests to the served model (name or folder), whose tokenizer decodes their token ids.

    Args:
        model: what vLLM serves.
        predictor: shipped name or folder; default from the environment variable PARSIM_PREDICTOR, else
            `pars`.

    Raises:
        UserError: the predictor or the tokenizer cannot be loaded; at start, not mid-traffic.
    """
    from parsim.predictor.scoring.predictor import load_predictor

    loaded = load_predictor(predictor or os.environ.get(PREDICTOR_VARIABLE, "pars"))
    decode = _decoder(model, head=8 * loaded.card.recipe.max_length)
    loaded.score(["warm up"])
    return BatchScorer(lambda texts: loaded.score_each(texts).tolist(), decode)


def _decoder(model: str, head: int) -> Callable[[Sequence[int]], str]:
    """Token ids -> text with the served model's tokenizer; only the first and last `head` ids are decoded."""
    from parsim.errors import UserError
    from parsim.predictor.ranker.encoder import load_tokenizer, reason

    try:
        tokenizer = load_tokenizer(model)
    except Exception as error:  # transformers and tokenizers have errors of many kinds
        raise UserError(
            f"model '{model}': no tokenizer to decode prompts with ({reason(error)}); send scores with requests"
        ) from error

    def decode(ids: Sequence[int]) -> str:
        some = list(ids) if len(ids) <= 2 * head else [*ids[:head], *ids[-head:]]
        return str(tokenizer.decode(some, skip_special_tokens=True))

    return decode
