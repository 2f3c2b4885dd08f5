"""Whether scores may order requests: what the queue asks, whoever answers (`parsim.learner.judge`)."""

from __future__ import annotations

from typing import Protocol

from parsim.scheduler.request import WaitingRequest


class Judge(Protocol):
    """Watches how scores rank what finishes."""

    @property
    def trusted(self) -> bool:
        """Whether scores order the requests; else they are served first come, first served."""

    def heard(self, request: WaitingRequest) -> float | None:
        """The request's score as far as it may be used: None for not at all. Called once a score."""

    def admitted(self, request: WaitingRequest) -> None:
        """The request leaves the queue to be served, perhaps again after a preemption."""

    def finished(self, request: WaitingRequest, output_tokens: int, stopped: bool | None) -> None:
        """The request has left the engine; `stopped`: by itself, False: cut, None: aborted or failed."""

    def reassess(self) -> None:
        """Form `trusted` anew from what has finished; called once a step, and cheap where nothing has."""
