"""Every inter-token gap of a run: the time between two tokens of one response, as a client sees it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from parsim.engine.batch import Batch
from parsim.engine.request import EngineRequest, State

if TYPE_CHECKING:
    import polars as pl


class TokenGaps:
    """Gaps kept by the step, not by the token.

    A sequence that decodes in two steps running waits one step between its tokens, so a step of duration d with n
    decoding sequences is n gaps of d. Steps that only decode are longer by the same amount each (`growth_s` a
    sequence), so that a run of them is one entry. Only tokens that come after a pause or a preemption are counted one
    by one. Gaps of requests that are withdrawn later are counted as well.

    Args:
        growth_s: seconds by which a step is longer for each token that it reads (`StepTime.kv_token_s`).

    Attributes:
        steps: duration and decoding sequences of one step after the other, flat; the engine appends to it.
        runs: the same of the first of several steps, and their number.
    """

    def __init__(self, growth_s: float) -> None:
        self._growth_s = growth_s
        self.steps = array("d")
        self.runs = array("d")
        self._late_s = array("d")
        self._since: dict[EngineRequest, float] = {}  # time of the last token of those that are held up
        self._paused: Sequence[EngineRequest] = ()

    @property
    def waiting(self) -> bool:
        """Whether a request has not gone on since it was preempted or passed over."""
        return bool(self._since)

    def resumed(self, batch: Batch) -> int:
        """Count the gaps longer than a step that end with `batch`; returns how many of its decoding sequences they
        are of."""
        since = self._since
        held = {*batch.paused, *batch.preempted}
        resumed = 0
        for request in self._paused:
            if request not in held:
                began = since.pop(request)
                if request.state is State.DECODE:  # and not withdrawn
                    self._late_s.append(batch.end_s - began)
                    resumed += 1
        for request in batch.caught_up:
            if request in since:
                self._late_s.append(batch.end_s - since.pop(request))
        for request in (*batch.preempted, *batch.paused):
            begun = request.state is State.DECODE or 0 < request.generated < request.output_tokens
            if begun:
                since.setdefault(request, batch.start_s)
        self._paused = batch.paused
        return resumed

    def frame(self) -> pl.DataFrame:
        """gap_s (ascending) and tokens, how many gaps are that long."""
        import numpy as np
        import polars as pl

        step_s, decoded = np.frombuffer(self.steps).reshape(-1, 2).T
        first_s, sequences, steps = np.frombuffer(self.runs).reshape(-1, 3).T
        count = steps.astype(np.int64)
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        grown_s = np.repeat(first_s, count) + np.repeat(self._growth_s * sequences, count) * place
        late_s = np.frombuffer(self._late_s)
        tokens = np.concatenate([decoded, np.repeat(sequences, count), np.ones(len(late_s))])
        gap_s = np.concatenate([step_s, grown_s, late_s])
        return pl.DataFrame({"gap_s": gap_s, "tokens": tokens.astype(np.int64)}).sort("gap_s")
