"""A request inside the simulated engine."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from parsim.scheduler.request import WaitingRequest

if TYPE_CHECKING:
    from parsim.engine.prefix_cache import Extent, SharedBlock

NEVER = -1.0
"""A time that has not come."""


class State(IntEnum):
    """Where a request is."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    DONE = 3


class EngineRequest(WaitingRequest):
    """A request with its progress.

    While it decodes nothing here changes: its progress follows from the step number. With `generated` tokens
    at its last admission, caught up in step `joined`, it has computed
    `prompt_tokens + generated + (step - joined)` tokens after `step`, and samples its last token in `last_step`.

    Attributes:
        index: its row in the trace.
        prompt_tokens, output_tokens: its lengths.
        prefix: ids of its shareable blocks, front first (see `prefix_cache`), which may go on into its response; empty
            if nothing is shared.
        stops: the response ends by itself (a stop token), not at `max_tokens`.
        overruns: it decodes in one step after that of its last token (rule 8).
        state: waiting, prefill, decode, done.
        place: its number in the order of admissions; running requests are served and freed in this order.
        generated: response tokens sampled up to the last (re)admission or preemption.
        computed: tokens in the KV cache while it prefills.
        blocks: blocks held while it prefills.
        joined, last_step: see above; -1 when it does not decode.
        decoding: counted among the decoding sequences of the next step.
        residue: the step number, modulo the block size, at which it needs a new block.
        idle_from, idle_to: the last unbroken run of steps in which it decoded nothing though it could have.
        first_scheduled_s, first_token_s, finish_s: seconds; NEVER until then.
        cached_tokens: prompt tokens found in the prefix cache at its first admission.
        predicted, scored_s: the score that a scorer will find, and when the scheduler learned it (seconds).
        preemptions, recomputed_tokens, computed_peak: what preemption cost it, in tokens.
        rejected: why it was refused or ended early; empty for the rest.
        shared, shared_full: its shared blocks (front first), and how many of them are full.
        kept, extents, admissions: its private blocks (see `prefix_cache`).
    """

    __slots__ = (
        "admissions",
        "blocks",
        "cached_tokens",
        "computed",
        "computed_peak",
        "decoding",
        "extents",
        "finish_s",
        "first_scheduled_s",
        "first_token_s",
        "generated",
        "idle_from",
        "idle_to",
        "index",
        "joined",
        "kept",
        "last_step",
        "output_tokens",
        "overruns",
        "place",
        "predicted",
        "preemptions",
        "prefix",
        "recomputed_tokens",
        "rejected",
        "residue",
        "scored_s",
        "shared",
        "shared_full",
        "state",
        "stops",
    )

    def __init__(
        self,
        index: int,
        request_id: str,
        arrival_s: float,
        prompt_tokens: int,
        output_tokens: int,
        score: float | None = None,
        prefix: range | list[int] | tuple[int, ...] = (),
        stops: bool = False,
    ) -> None:
        super().__init__(request_id, arrival_s, score, prompt_tokens)
        self.index = index
        self.output_tokens = output_tokens
        self.prefix = prefix
        self.stops = stops
        self.overruns = False
        self.state = State.WAITING
        self.place = -1
        self.generated = 0
        self.computed = 0
        self.blocks = 0
        self.joined = -1
        self.last_step = -1
        self.decoding = False
        self.residue = 0
        self.idle_from = -1
        self.idle_to = -1
        self.first_scheduled_s = NEVER
        self.first_token_s = NEVER
        self.finish_s = NEVER
        self.predicted: float | None = None
        self.scored_s = NEVER
        self.cached_tokens = 0
        self.preemptions = 0
        self.recomputed_tokens = 0
        self.computed_peak = 0
        self.rejected = ""
        self.shared: list[SharedBlock] = _NONE
        self.shared_full = 0
        self.kept: list[tuple[int, int, int]] = _NONE
        self.extents: list[Extent] = _NONE
        self.admissions = 0


_NONE: list = []
"""Stands for 'no blocks'; never appended to (see `prefix_cache`)."""
