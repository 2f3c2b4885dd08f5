"""Every inter-token gap of a run: the time between two tokens of one response, as a client sees it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parsim.engine.batch import Batch
from parsim.engine.request import EngineRequest, State
from parsim.engine.step_time import StepTime

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
        runs: of each run of steps the tokens that the first one reads, decoding sequences, and steps, flat.
    """

    def __init__(self, step_time: StepTime) -> None:
        self._step_time = step_time
        self.steps = array("d")
        self.runs = array("q")
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
        first, sequences, count = np.frombuffer(self.runs, dtype=np.int64).reshape(-1, 3).T
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        sequences = np.repeat(sequences, count)
        seconds: Any = self._step_time.seconds  # a formula, for columns as for numbers
        run_s = seconds(0, sequences, np.repeat(first, count) + sequences * place, 0)
        late_s = np.frombuffer(self._late_s)
        tokens = np.concatenate([decoded, sequences, np.ones(len(late_s))])
        gap_s = np.concatenate([step_s, run_s, late_s])
        return pl.DataFrame({"gap_s": gap_s, "tokens": tokens.astype(np.int64)}).sort("gap_s")
