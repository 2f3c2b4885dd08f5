"""A scorer at work beside a scheduler: it may fail or be slow, and serving goes on."""

from __future__ import annotations

import importlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from parsim.scheduler.features import Features

T = TypeVar("T")

BLOCKING_LIMIT_S = 0.05
"""A scorer works on a thread of its own; a call that holds the scheduler for longer counts as a failure."""

FAILURES_IN_A_ROW = 5
"""After so many failures in a row the scorer is given up: calls that failed with none between that did something, or
failed batches and wrong answers with no score between. A poll that finds nothing says nothing."""


class Scorer(Protocol):
    """Predicts response lengths off the scheduling thread. All methods return at once.

    A scorer whose worker can fail out of sight counts that in `stats.failures`, if it has such an attribute.
    """

    def submit(self, request_id: str, features: Features) -> None:
        """Ask for the score of a request."""

    def poll(self) -> Mapping[str, float]:
        """Scores that became ready since the last call, by request id; higher = longer response."""

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """A request that was submitted has left: `stopped` by itself, False: cut, None: aborted or failed."""

    def close(self) -> None:
        """Stop the worker; no call follows."""


class ScoreFeed:
    """Shields a scheduler from its scorer: each failure is counted, the first is logged, none is raised.

    Attributes:
        failures: calls that raised, blocked or returned no mapping, batches that failed on the scorer's own thread, and
            answers that are no finite number.
        given_up: the scorer failed `FAILURES_IN_A_ROW` times in a row and is asked no more.
    """

    def __init__(self, scorer: Scorer, log: logging.Logger) -> None:
        self._scorer = scorer
        self._log = log
        self._calls_in_a_row = 0
        self._answers_in_a_row = 0
        self._failed_behind = 0
        self.failures = 0
        self.given_up = False

    def submit(self, request_id: str, features: Features) -> bool:
        """Ask for a score; it comes out of `poll`, or never. Returns whether the scorer took the request."""

        def ask() -> bool:
            self._scorer.submit(request_id, features)
            return True

        return self._call(ask, False)

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """Pass on how a request ended."""
        self._call(lambda: self._scorer.finished(request_id, output_tokens, stopped), None)

    def poll(self) -> dict[str, float]:
        """The finite scores that became ready since the last call."""
        nothing: dict[str, Any] = {}
        scores = self._call(lambda: dict(self._scorer.poll()), nothing)
        failed_behind = _failures(self._scorer)
        for _ in range(min(failed_behind - self._failed_behind, FAILURES_IN_A_ROW)):
            self._fail_to_answer(RuntimeError("a batch failed on its own thread"))
        self._failed_behind = failed_behind
        ready = {}
        for request_id, raw in scores.items():
            score = finite(raw)
            if score is None:
                self._fail_to_answer(ValueError(f"score {raw!r} of request {request_id}"))
            else:
                self._answers_in_a_row = 0
                ready[request_id] = score
        return ready

    def facts(self) -> dict[str, float]:
        """Gauges that the scorer has of its own, if it has any."""
        tell = getattr(self._scorer, "facts", None)
        return {} if tell is None else self._call(lambda: dict(tell()), {})

    def close(self) -> None:
        """Stop the scorer."""
        try:
            self._scorer.close()
        except Exception as error:
            self._count(error)

    def _call(self, function: Callable[[], T], otherwise: T) -> T:
        if self.given_up:
            return otherwise
        started = time.perf_counter()
        try:
            result = function()
        except Exception as error:
            self._fail_to_run(error)
            return otherwise
        blocked_s = time.perf_counter() - started
        if blocked_s > BLOCKING_LIMIT_S:
            self._fail_to_run(TimeoutError(f"it held the scheduler for {blocked_s:.3f} s"))
        elif result:
            self._calls_in_a_row = 0
        return result

    def _fail_to_run(self, error: Exception) -> None:
        self._calls_in_a_row += 1
        self._count(error)

    def _fail_to_answer(self, error: Exception) -> None:
        self._answers_in_a_row += 1
        self._count(error)

    def _count(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            self._log.warning(
                "parsim: the scorer failed (%s: %s); such requests rank without a score. Logged once; the "
                "counter is scorer_failures.",
                type(error).__name__,
                error,
            )
        in_a_row = max(self._calls_in_a_row, self._answers_in_a_row)
        if in_a_row >= FAILURES_IN_A_ROW and not self.given_up:
            self.given_up = True
            self._log.warning("parsim: the scorer failed %d times in a row and is given up.", in_a_row)


def _failures(scorer: Scorer) -> int:
    """How many batches the scorer says have failed out of sight; 0 where it says nothing of the kind."""
    failures = getattr(getattr(scorer, "stats", None), "failures", 0)
    return failures if isinstance(failures, int) else 0


def finite(raw: Any) -> float | None:
    """The number that `raw` stands for (text counts), or None where it is none or not finite, or too large for one."""
    try:
        value = float(raw)
    except Exception:  # whatever the type of `raw` raises: a tensor of two numbers has an error of its own
        return None
    return value if math.isfinite(value) else None


NAMED_SCORERS = {"online": "parsim.learner.worker:create"}
"""Scorers with a name."""


def load_scorer(path: str, model: str, **options: Any) -> Scorer:
    """Call "package.module:name" with the served model's name or folder and `options`; it returns the scorer.

    Args:
        path: such a place, or a name of `NAMED_SCORERS`.
        model: what is served.
        options: keyword arguments of the scorer.

    Raises:
        ValueError: the path names nothing that can be imported and called.
    """
    module_name, _, name = NAMED_SCORERS.get(path, path).partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"parsim scheduler: scorer {path!r} is not 'package.module:name': {error}") from None
    try:
        scorer: Scorer = factory(model, **options)
    except Exception as error:  # a stranger's code
        raise ValueError(f"parsim scheduler: scorer {path!r} cannot be made: {error!r}") from error
    missing = [method for method in ("submit", "poll", "finished", "close") if not hasattr(scorer, method)]
    if missing:
        raise ValueError(f"parsim scheduler: scorer {path!r} has no {', '.join(missing)}")
    return scorer
