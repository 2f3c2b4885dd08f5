"""The learner beside a live scheduler, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from parsim.errors import UserError
from parsim.learner.online import OnlineLearner
from parsim.learner.store import read_state, write_state
from parsim.scheduler.features import Features

log = logging.getLogger("vllm.parsim")

MOST_WAITING = 65_536
"""Calls held for the thread at most; beyond this the oldest are dropped and counted."""

YIELD_S = 1e-4
"""The thread sleeps so long between two requests, so that the scheduling thread never waits for more than one."""

SAVE_EVERY_S = 300.0


def create(model: str, learner_state: str | None = None) -> LearnerThread:
    """The scorer named `online`: a learner that starts from what `learner_state` holds, or from nothing.

    Args:
        model: what is served; the learner needs nothing of it.
        learner_state: file that its state is kept in; None for none.
    """
    return LearnerThread(OnlineLearner(), Path(learner_state) if learner_state else None)


class LearnerStats:
    """Counters of a learner at work: failures (calls that raised), dropped (calls that found no room), saved."""

    def __init__(self) -> None:
        self.failures = 0
        self.dropped = 0
        self.saved = 0


class LearnerThread:
    """`OnlineLearner` with every call carried out, in order, by a thread; `parsim.scheduler.scoring.Scorer`.

    Args:
        learner: used by the thread alone from now on.
        path: where its state is kept: read at the start, written every `SAVE_EVERY_S` and at the end; None for nowhere.
            A damaged file is refused with a line in the log, and the learner starts from nothing.
    """

    def __init__(self, learner: OnlineLearner, path: Path | None = None) -> None:
        self.learner = learner
        self.stats = LearnerStats()
        self._path = path
        self._calls: deque[tuple[Any, ...]] = deque()
        self._ready: dict[str, float] = {}
        self._lock = threading.Lock()
        self._called = threading.Condition(self._lock)
        self._closed = False
        if path is not None and path.exists():
            try:
                learner.load(read_state(path))
                log.info("parsim: the learner goes on from %s (%d requests learned)", path, learner.learned)
            except (UserError, ValueError) as error:
                self.learner = OnlineLearner()
                log.warning("parsim: the learner's state is not used and it starts from nothing: %s", error)
                if path.is_file():  # it may be another's file: what is learned is not written over it
                    with suppress(OSError):
                        path.replace(path.with_name(f"{path.name}.refused"))
        self._thread = threading.Thread(target=self._work, name="parsim-learner", daemon=True)
        self._thread.start()

    def submit(self, request_id: str, features: Features) -> None:
        """Ask for the score of a request."""
        self._call(self.learner.submit, request_id, features)

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """Tell the outcome of a request (see `OnlineLearner.finished`)."""
        self._call(self.learner.finished, request_id, output_tokens, stopped)

    def poll(self) -> dict[str, float]:
        """Scores that became ready since the last call, by request id."""
        with self._lock:
            ready, self._ready = self._ready, {}
            return ready

    def facts(self) -> dict[str, float]:
        """How much it has learned, how its models rank lately, and what waits for its thread."""
        learner = self.learner
        taus = {f"learner_tau_{name}": tau for name, tau in learner.taus.items()}
        return {
            "learner_learned": learner.learned,
            "learner_cut": learner.cut,
            "learner_waiting": len(self._calls),
            "learner_dropped": self.stats.dropped,
            "learner_saved": self.stats.saved,
            **taus,
        }

    def state(self) -> dict[str, NDArray[Any]]:
        """The learner's state; call it when the thread is idle or closed."""
        return self.learner.state()

    def close(self) -> None:
        """Stop the thread after its present call, and save."""
        with self._called:
            self._closed = True
            self._called.notify()
        self._thread.join(timeout=5.0)
        if not self._thread.is_alive():
            self._save()

    def _call(self, *call: Any) -> None:
        with self._called:
            if self._closed:
                return
            if len(self._calls) >= MOST_WAITING:
                self._calls.popleft()
                self.stats.dropped += 1
            self._calls.append(call)
            self._called.notify()

    def _work(self) -> None:
        save_at = time.monotonic() + SAVE_EVERY_S
        while True:
            with self._called:
                while not self._calls and not self._closed:
                    self._called.wait(timeout=SAVE_EVERY_S)
                    if time.monotonic() >= save_at:
                        break
                if self._closed:
                    return
                function, *arguments = self._calls.popleft() if self._calls else (None,)
            try:
                if function is not None:
                    function(*arguments)
                    ready = self.learner.poll()
                    if ready:
                        with self._lock:
                            self._ready.update(ready)
            except Exception as error:
                self.stats.failures += 1
                if self.stats.failures == 1:
                    log.warning("parsim: the learner failed (further failures are counted): %r", error)
            if time.monotonic() >= save_at:
                self._save()
                save_at = time.monotonic() + SAVE_EVERY_S
            time.sleep(YIELD_S)

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            write_state(self._path, self.learner.state())
            self.stats.saved += 1
        except (OSError, UserError) as error:  # else the learner's thread would end
            self.stats.failures += 1
            log.warning("parsim: the learner's state cannot be saved: %s", error)
