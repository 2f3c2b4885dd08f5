"""The scorer beside the scheduler (`parsim.predictor.scoring.scorer.BatchScorer`) in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from parsim.engine.scoring_cost import MAX_WAIT_S, ScoringCost

R = TypeVar("R")

NEVER_S = float("inf")


class VirtualScorer(Generic[R]):
    """One worker that scores in batches: when it is free it takes what was submitted, the newest first.

    Newest first, because under more prompts than it can score the late answers are those that no longer matter.

    Attributes:
        cost: seconds a batch.
        busy_s: seconds of the batches that were begun.
        expired: requests that waited longer than `MAX_WAIT_S` for the worker and stay without a score.
        on_begin: called with the end, in seconds, of each batch as it is begun.
    """

    def __init__(self, cost: ScoringCost) -> None:
        self.cost = cost
        self.busy_s = 0.0
        self.expired = 0
        self.on_begin: Callable[[float], None] | None = None
        self._waiting: deque[tuple[float, R, int]] = deque()  # submitted at, request, prompt tokens
        self._batch: list[R] = []
        self._end_s = NEVER_S
        self._free_s = 0.0
        self._ready: list[R] = []
        self._not_charged_s = 0.0

    def submit(self, request: R, prompt_tokens: int, now_s: float) -> None:
        """Ask for a score. The worker, if free, begins once all requests of this moment are in."""
        self._advance(now_s, begin_now=False)
        self._waiting.append((now_s, request, prompt_tokens))

    def finished(self, request: R, output_tokens: int, stopped: bool | None) -> None:
        """Its scores do not come from what finishes."""

    def poll(self, now_s: float) -> list[R]:
        """The requests whose scores became known since the last call."""
        self._advance(now_s, begin_now=True)
        ready, self._ready = self._ready, []
        return ready

    @property
    def next_s(self) -> float:
        """When the batch in work ends, as of the last `poll`; infinity if there is none."""
        return self._end_s

    def take_charge_s(self) -> float:
        """Seconds that the engine stands still for batches begun since the last call: 0 with a core of its own."""
        charge, self._not_charged_s = self._not_charged_s, 0.0
        return charge if self.cost.shares_core else 0.0

    def _advance(self, now_s: float, begin_now: bool) -> None:
        """End and begin batches up to `now_s`; `begin_now`: also one that begins at that very moment."""
        while True:
            if self._batch:
                if self._end_s > now_s:
                    return
                self._ready += self._batch
                self._free_s, self._end_s, self._batch = self._end_s, NEVER_S, []
            if not self._waiting:
                return
            start_s = max(self._free_s, self._waiting[0][0])
            if start_s > now_s or (start_s == now_s and not begin_now):
                return
            self._begin(start_s)

    def _begin(self, start_s: float) -> None:
        waiting = self._waiting
        while waiting and start_s - waiting[0][0] > MAX_WAIT_S:
            waiting.popleft()
            self.expired += 1
        taken = [waiting.pop() for _ in range(min(self.cost.max_batch, len(waiting)))]
        if not taken:
            return
        spent_s = self.cost.seconds([tokens for _, _, tokens in taken])
        self.busy_s += spent_s
        self._not_charged_s += spent_s
        self._batch = [request for _, request, _ in taken]
        self._end_s = start_s + spent_s
        if self.on_begin is not None:
            self.on_begin(self._end_s)
