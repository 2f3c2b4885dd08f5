"""The online learner: from nothing, from the requests that finish."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsim.learner import hashing
from parsim.learner.hashing import Row
from parsim.learner.kendall import tau_b
from parsim.learner.means import KeyedMeans
from parsim.learner.ridge import GROUPS, Rarity, Ridge
from parsim.scheduler.features import Features

POWER = 0.3
"""The models predict (output tokens) ** POWER: a compromise between the mean, which ranks the long ones well, and the
mean of the logarithm, which ranks the short ones well."""

MODELS = ("words", "recent", "shape", "means")

LEAST = 20
"""No score is given before so many requests have been learned."""

WEIGHED_OVER = 256
"""The models' weights follow from how they ranked this many of the last finished requests."""
WEIGH_EVERY = 32

MAX_IN_FLIGHT_ENTRIES = 4_000_000
"""Features held for requests that are not finished; beyond this the oldest are forgotten, and not learned from."""


@dataclass(slots=True)
class _Open:
    """A request that has not finished: what is needed to learn from it."""

    words: Row
    shape: Row
    keys: tuple[int, ...]
    group: int
    predicted: tuple[float, ...]


class OnlineLearner:
    """Scores requests by what the finished ones taught, at once and on the caller's thread.

    Four models: a ridge on tokens and pairs of tokens with a long memory; the same with a short one; a ridge on the
    shape of the request (how it begins and ends, lengths, limits, app); running means by key. Each predicts before it
    learns, so how it ranks lately is measured on what it had not seen; the score is their mean weighted by
    exp(SHARPNESS tau).

    Deterministic: the same calls in the same order give the same scores. Nothing grows without bound.

    Attributes:
        learned: requests learned from; cut: those of them of which only a lower bound was known.
        taus: tau-b of each model over the last finished requests, by name; NaN until measured.
    """

    SHARPNESS = 12.0

    def __init__(self, seed: int = 0) -> None:
        self._rarity = Rarity()
        self._marks = Rarity()
        self._words = Ridge(20_000, 6_000_000, replays=4, seed=seed)
        self._recent = Ridge(400, 400_000, replays=1, seed=seed + 1)
        self._shape = Ridge(20_000, 600_000, replays=2, seed=seed + 2)
        self._means = KeyedMeans()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._open_entries = 0
        self._ready: dict[str, float] = {}
        self._history = np.zeros((WEIGHED_OVER, len(MODELS) + 2))  # predictions, target, is a bound
        self._weights = np.full(len(MODELS), 1.0 / len(MODELS))
        self.learned = 0
        self.cut = 0
        self.taus = dict.fromkeys(MODELS, math.nan)

    @property
    def weights(self) -> dict[str, float]:
        """What each model's prediction counts for; they sum to 1."""
        return dict(zip(MODELS, self._weights.tolist(), strict=True))

    def submit(self, request_id: str, features: Features) -> None:
        """Score a request that has arrived, and remember it until it is finished."""
        ids, app = hashing.token_ids(features), hashing.app_key(features)
        words = self._rarity.weigh(hashing.words(ids, app))
        shape = self._marks.weigh(hashing.shape(ids, features, app))
        keys = self._means.keys(ids, features, app)
        predicted = (
            self._words.predict(words),
            self._recent.predict(words),
            self._shape.predict(shape),
            self._means.predict(keys),
        )
        self._open[request_id] = _Open(words, shape, keys, app % GROUPS, predicted)
        self._open_entries += len(words.places)
        while self._open_entries > MAX_IN_FLIGHT_ENTRIES:
            self._open_entries -= len(self._open.popitem(last=False)[1].words.places)
        if self.learned >= LEAST:
            self._ready[request_id] = self._tokens(predicted)

    def poll(self) -> dict[str, float]:
        """Expected output tokens of the requests submitted since the last call, by id."""
        ready, self._ready = self._ready, {}
        return ready

    def finished(self, request_id: str, output_tokens: int, stopped: bool | None) -> None:
        """Learn from a request that has left.

        Args:
            request_id: an id that was submitted; others are ignored.
            output_tokens: its length, thinking included.
            stopped: it ended by itself; False: it was cut, so that its length is a lower bound; None: it was aborted or
                failed, and teaches nothing.
        """
        request = self._open.pop(request_id, None)
        if request is None:
            return
        self._open_entries -= len(request.words.places)
        if stopped is None:
            self._ready.pop(request_id, None)
            return
        target, bound = float(max(output_tokens, 1)) ** POWER, not stopped
        slot = self.learned % WEIGHED_OVER
        self._history[slot] = (*request.predicted, target, bound)
        self.learned += 1
        self.cut += bound
        self._words.learn(request.words, target, bound, request.group)
        self._recent.learn(request.words, target, bound, request.group)
        self._shape.learn(request.shape, target, bound, request.group)
        self._means.learn(request.keys, target, bound)
        if self.learned % WEIGH_EVERY == 0:
            self._weigh()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learned, as arrays by name; requests that are not finished are left out."""
        parts = {
            f"{name}.{key}": array for name, ridge in self._ridges() for key, array in ridge.state().items()
        }
        return {
            **parts,
            "rarity.seen": self._rarity.seen,
            "marks.seen": self._marks.seen,
            "means": self._means.sums,
            "history": self._history,
            "weights": self._weights,
            "counts": np.array([self.learned, self.cut, self._rarity.rows, self._marks.rows], np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up a state of `state`; the learner must be new. It then scores as the other one did.

        Raises:
            ValueError: it is not one: an array is missing, of another shape or type, or holds what is no finite number.
        """
        expected = self.state()
        if state.keys() != expected.keys():
            odd = sorted(state.keys() ^ expected.keys())
            raise ValueError(f"arrays differ: {', '.join(odd[:3])}")
        for name, array in state.items():
            known = expected[name]
            fixed = not name.partition(".")[2] or name.endswith((".weights", ".seen", ".scalars"))
            if (
                array.dtype != known.dtype
                or array.ndim != known.ndim
                or (fixed and array.shape != known.shape)
            ):
                raise ValueError(f"{name} is {array.dtype}{list(array.shape)}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"{name} holds something other than finite numbers")
        counts = state["counts"]
        if counts.min() < 0 or any(state[f"{name}.seen"].min() < 0 for name in ("rarity", "marks")):
            raise ValueError("counts below 0")
        for name, ridge in self._ridges():
            ridge.load({key: state[f"{name}.{key}"] for key in ridge.state()})
        self._rarity.seen, self._marks.seen = state["rarity.seen"].copy(), state["marks.seen"].copy()
        self._means.sums = state["means"].copy()
        self._history = state["history"].copy()
        self.learned, self.cut, self._rarity.rows, self._marks.rows = counts.tolist()
        if self.learned >= WEIGH_EVERY:
            self._weigh()  # for the taus
        self._weights = state["weights"].copy()

    def _ridges(self) -> tuple[tuple[str, Ridge], ...]:
        return ("words", self._words), ("recent", self._recent), ("shape", self._shape)

    def _tokens(self, predicted: tuple[float, ...]) -> float:
        mixed = float(self._weights @ np.array(predicted))
        return float(max(mixed, 0.0) ** (1.0 / POWER))

    def _weigh(self) -> None:
        """Weigh the models by how they ranked the last finished requests."""
        known = self._history[: min(self.learned, WEIGHED_OVER)]
        targets, bounds = known[:, -2], known[:, -1] > 0
        taus = np.array([tau_b(known[:, model], targets, bounds).value for model in range(len(MODELS))])
        self.taus = dict(zip(MODELS, taus.tolist(), strict=True))
        good = np.exp(self.SHARPNESS * np.nan_to_num(taus, nan=0.0))
        self._weights = good / good.sum()
