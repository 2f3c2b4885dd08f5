"""The online learner beside the scheduler, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from parsim.engine.request import EngineRequest
from parsim.engine.scorer import NEVER_S
from parsim.scheduler.features import Features

if TYPE_CHECKING:
    from parsim.learner.online import OnlineLearner


class LearningScorer:
    """Scores requests by what has finished in this run, and by nothing else; takes no time of its own.

    In a serving engine the learner has a thread, and answers within milliseconds.

    Args:
        learner: the object that learns in a serving engine.
        features: what it is told of the request in this row of the workload.

    Attributes:
        said: the score given, by row.
    """

    busy_s = 0.0
    next_s = NEVER_S

    def __init__(self, learner: OnlineLearner, features: Callable[[int], Features]) -> None:
        self.learner = learner
        self.said: dict[int, float] = {}
        self.on_begin: Callable[[float], None] | None = None
        self._features = features
        self._asked: dict[str, EngineRequest] = {}

    def submit(self, request: EngineRequest, prompt_tokens: int, now_s: float) -> None:
        """Ask for a score; it is there at the next poll, once the learner has learned enough to give any."""
        self.learner.submit(request.request_id, self._features(request.index))
        self._asked[request.request_id] = request

    def poll(self, now_s: float) -> list[EngineRequest]:
        """The requests whose scores became known since the last call."""
        ready = []
        for request_id, score in self.learner.poll().items():
            request = self._asked.get(request_id)
            if request is not None:
                request.predicted = self.said[request.index] = score
                ready.append(request)
        return ready

    def take_charge_s(self) -> float:
        """It does not hold the engine up."""
        return 0.0

    def finished(self, request: EngineRequest, output_tokens: int, stopped: bool | None) -> None:
        """The learner learns from a request that has left."""
        if self._asked.pop(request.request_id, None) is not None:
            self.learner.finished(request.request_id, output_tokens, stopped)
