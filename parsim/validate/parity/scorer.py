"""Scorers for `ParsScheduler` that answer in virtual time: with the scores of a parity case, or by learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parsim.engine.scorer import VirtualScorer
from parsim.engine.scoring_cost import ScoringCost
from parsim.learner.online import OnlineLearner
from parsim.scheduler.features import Features
from parsim.validate.parity.case import Case
from parsim.validate.parity.tokens import prompt_token_ids


class CaseScorer:
    """`parsim.scheduler.scoring.Scorer` over a `VirtualScorer`.

    Args:
        cost: seconds a batch; never on the engine's core, whose step times the case fixes.
        scores: by request id; a request without one gets no answer.
        clock: seconds now.
    """

    def __init__(
        self, cost: ScoringCost, scores: Mapping[str, float | None], clock: Callable[[], float]
    ) -> None:
        self._worker: VirtualScorer[str] = VirtualScorer(cost)
        self._scores = scores
        self._clock = clock

    def submit(self, request_id: str, features: Features) -> None:
        self._worker.submit(request_id, features.prompt_tokens, self._clock())

    def poll(self) -> dict[str, float]:
        ready = ((request_id, self._scores[request_id]) for request_id in self._worker.poll(self._clock()))
        return {request_id: score for request_id, score in ready if score is not None}

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """Its scores are fixed."""

    def close(self) -> None:
        """Nothing to stop."""


class LearnerInTurn(OnlineLearner):
    """The online learner without its thread: what it says of a request comes with the next poll."""

    def close(self) -> None:
        """Nothing to stop."""


def features_of_case(case: Case, index: int) -> Features:
    """What the learner is told of the case's request with this index; lengths are forced, so there is no limit."""
    request = case.requests[index]
    tokens = prompt_token_ids(index, request.prompt_tokens, request.prefix_hashes, case.hash_block_size)
    return Features(prompt_token_ids=tokens, prompt_tokens=request.prompt_tokens)
