"""The online learner beside the scheduler, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from parsim.engine.request import EngineRequest
from parsim.engine.scorer import NEVER_S
from parsim.scheduler.features import Features

if TYPE_CHECKING:
    import polars as pl

    from parsim.learner.online import OnlineLearner


class LearningScorer:
    """Scores requests by what has finished in this run, and by nothing else; takes no time of its own.

    In a serving engine the learner has a thread, and answers within milliseconds.

    A row that was drawn twice, from a corpus or in blocks, gets the score that its first copy got and is not learned
    again: the learner must not know a response because it has seen this very one.

    Args:
        learner: the object that learns in a serving engine.
        features: what it is told of the request in this row of the workload.
        first_copy: the first row of which a row is a copy, itself for most; None for no copies at all.

    Attributes:
        said: the score given, by row.
    """

    busy_s = 0.0
    next_s = NEVER_S

    def __init__(
        self,
        learner: OnlineLearner,
        features: Callable[[int], Features],
        first_copy: Sequence[int] | None = None,
    ) -> None:
        self.learner = learner
        self._first_copy = first_copy
        self._copies: list[EngineRequest] = []
        self.said: dict[int, float] = {}
        self.on_begin: Callable[[float], None] | None = None
        self._features = features
        self._asked: dict[str, EngineRequest] = {}

    @classmethod
    def on(cls, frame: pl.DataFrame, seed: int) -> LearningScorer:
        """A learner that has learned nothing, for the requests of a trace. It is told a prompt's words where there is
        text, else the hashes of its blocks, where there are any; its length and its client always."""
        from parsim.learner.online import OnlineLearner

        tokens = frame["prompt_tokens"].to_list()
        texts = frame["prompt"] if "prompt" in frame.columns else None
        hashes = frame["prefix_hashes"] if "prefix_hashes" in frame.columns and texts is None else None
        clients = frame["client_id"].fill_null("").to_list() if "client_id" in frame.columns else None

        def features(row: int) -> Features:
            blocks = None if hashes is None else hashes[row]
            return Features(
                prompt_token_ids=() if blocks is None else blocks.to_list(),
                prompt_tokens=tokens[row],
                app="" if clients is None else clients[row],
                text=None if texts is None else texts[row],
            )

        return cls(OnlineLearner(seed), features, _first_copies(frame))

    def scores(self, rows: int) -> pl.Series:
        """The score given, by row; null where there was none."""
        import polars as pl

        return pl.Series("score", [self.said.get(row) for row in range(rows)], dtype=pl.Float64)

    def facts(self, lengths: pl.Series) -> dict[str, float | None]:
        """scored: the share of the requests that got a score; learned_tau: tau-b of all those scores with the true
        lengths, None for fewer than two."""
        from parsim.emulation import sampled_tau_b

        scores = self.scores(len(lengths))
        there = scores.is_not_null()
        known, true = scores.filter(there).to_numpy(), lengths.filter(there).to_numpy()
        return {
            "scored": len(known) / max(len(lengths), 1),
            "learned_tau": sampled_tau_b(known, true) if len(known) > 1 else None,
        }

    def submit(self, request: EngineRequest, prompt_tokens: int, now_s: float) -> None:
        """Ask for a score; it is there at the next poll, once the learner has learned enough to give any."""
        if self._first_copy is not None and self._first_copy[request.index] != request.index:
            self._copies.append(request)
            return
        self.learner.submit(request.request_id, self._features(request.index))
        self._asked[request.request_id] = request

    def poll(self, now_s: float) -> list[EngineRequest]:
        """The requests whose scores became known since the last call."""
        ready = []
        for copy in self._copies:
            score = self.said.get(self._first_copy[copy.index]) if self._first_copy is not None else None
            if score is not None:
                copy.predicted = self.said[copy.index] = score
                ready.append(copy)
        self._copies.clear()
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


def _first_copies(frame: pl.DataFrame) -> list[int] | None:
    """The first row with the same prompt and the same lengths, for each row; None where prompts are not known."""
    import polars as pl

    known = next((name for name in ("prompt", "prefix_hashes") if name in frame.columns), None)
    if known is None:
        return None
    prompt = pl.col(known) if known == "prompt" else pl.col(known).cast(pl.List(pl.String)).list.join(",")
    keys = frame.select(prompt.alias("prompt"), "prompt_tokens", "output_tokens").with_row_index("row")
    first = keys.select(pl.col("row").first().over("prompt", "prompt_tokens", "output_tokens"))
    return first.to_series().to_list()
