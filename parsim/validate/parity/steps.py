"""What both sides of a parity check write down: a `Step` for each call of `schedule()` that did something."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of the scheduler.

    Attributes:
        formed_s: when the batch was formed, seconds.
        start_s, end_s: when the device works on it, seconds; with async scheduling later than `formed_s`.
        scheduled: (request id, tokens) in the order in which the scheduler placed them.
        admitted: (request id, tokens found in the prefix cache) for each request that left the queue.
        preempted: request ids in the order in which they lost their blocks.
        free_blocks: blocks of the pool that are free after the decision.
        running, waiting: requests in either state after the decision.
        totals: prefill tokens, decoding sequences, their KV tokens, attention pairs (`StepTime.seconds`).
    """

    formed_s: float
    start_s: float
    end_s: float
    scheduled: tuple[tuple[str, int], ...]
    admitted: tuple[tuple[str, int], ...]
    preempted: tuple[str, ...]
    free_blocks: int
    running: int
    waiting: int
    totals: tuple[int, int, int, int]


@dataclass(slots=True)
class StepLog:
    """The steps of a run, and when each request's first and last tokens came out (seconds).

    `cpu_s`: CPU time of the run, without making the requests (on vLLM's side the prompts' tokens and hashes).
    `endless`: it was ended after `Case.most_steps`: requests of one score and arrival preempted each other in turn.
    """

    steps: list[Step] = field(default_factory=list)
    first_token_s: dict[str, float] = field(default_factory=dict)
    last_token_s: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0
    endless: bool = False

    @property
    def preemptions(self) -> int:
        return sum(len(step.preempted) for step in self.steps)
