"""A linear model on hashed rows that is learned one request at a time."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsim.learner.hashing import WIDTH, Row

MEAN_OVER = 500
"""The intercept is a running mean over about so many requests."""

GROUPS = 64
"""Apps are told apart in so many groups when something must be forgotten."""


class Rarity:
    """Weighs a row's values by inverse document frequency, ln((1 + n) / (1 + n_i)) + 1, and gives it unit length."""

    def __init__(self) -> None:
        self.seen = np.zeros(WIDTH, np.float32)
        self.rows = 0

    def weigh(self, row: Row) -> Row:
        """Count a row, and weigh it by what has been counted."""
        self.rows += 1
        seen = self.seen[row.places] + 1.0
        self.seen[row.places] = seen
        values = row.values * (1.0 + math.log(1.0 + self.rows) - np.log(1.0 + seen))
        return Row(row.places, (values / math.sqrt(float(values @ values) or 1.0)).astype(np.float32))


class Ridge:
    """Ridge regression on rows of unit length, solved by stochastic dual coordinate ascent.

    With w = sum_i a_i x_i the dual optimum has a_i = (y_i - b - x_i w) / penalty. One step sets a_i for one row exactly
    (Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent", JMLR 2013): each finished request takes one
    for itself and `replays` for rows drawn from those kept. To forget a row is to take a_i x_i out of w, exactly;
    what is forgotten is the oldest row of the app that has the most, so that a quiet app keeps what it taught.

    A length that is only a lower bound is learned as its expected value above the bound under the present
    prediction (Tobin 1958), at most one standard error above the bound.

    Args:
        rows, entries: rows and non-zero values kept at most.
        replays: rows learned again with each new one.
        penalty: of ridge regression, rows being of unit length.
        seed: of the rows drawn.
    """

    def __init__(
        self, rows: int, entries: int, replays: int = 4, penalty: float = 1.0, seed: int = 0
    ) -> None:
        self.weights = np.zeros(WIDTH, np.float32)
        self.learned = 0
        self.mean = 0.0
        self.variance = 0.0
        self._most_rows, self._most_entries = rows, entries
        self._replays, self._penalty = replays, penalty
        self._rng = np.random.default_rng(seed)
        self._rows: list[Row] = []
        self._targets: list[float] = []
        self._duals: list[float] = []
        self._bounds: list[bool] = []
        self._free: list[int] = []
        self._groups: list[deque[int]] = [deque() for _ in range(GROUPS)]
        self._entries = 0

    def __len__(self) -> int:
        return len(self._rows) - len(self._free)

    def predict(self, row: Row) -> float:
        """The expected target."""
        return self.mean + float(self.weights[row.places] @ row.values)

    def learn(self, row: Row, target: float, bound: bool, group: int) -> None:
        """Learn one finished request.

        Args:
            row: of unit length.
            target: what was to be predicted.
            bound: `target` is only a lower bound of it.
            group: of its app, 0 <= group < GROUPS.
        """
        self.learned += 1
        self.mean += (target - self.mean) / min(self.learned, MEAN_OVER)
        while self._entries + len(row.places) > self._most_entries or len(self) >= self._most_rows:
            if not len(self):
                return
            self._forget_one()
        place = self._keep(row, target, bound, group)
        error = target - self.mean - float(self.weights[row.places] @ row.values)
        if not bound:
            self.variance += (error * error - self.variance) / min(self.learned, MEAN_OVER)
        self._step(place)
        for drawn in self._rng.integers(len(self._rows), size=self._replays).tolist():
            if self._rows[drawn].places.size:  # else forgotten
                self._step(drawn)

    def _keep(self, row: Row, target: float, bound: bool, group: int) -> int:
        if self._free:
            place = self._free.pop()
            self._rows[place], self._targets[place] = row, target
            self._duals[place], self._bounds[place] = 0.0, bound
        else:
            place = len(self._rows)
            self._rows.append(row)
            self._targets.append(target)
            self._duals.append(0.0)
            self._bounds.append(bound)
        self._groups[group].append(place)
        self._entries += len(row.places)
        return place

    def _forget_one(self) -> None:
        place = max(self._groups, key=len).popleft()
        places, values = self._rows[place]
        self.weights[places] -= self._duals[place] * values
        self._entries -= len(places)
        self._rows[place] = Row(places[:0], values[:0])
        self._duals[place] = 0.0
        self._free.append(place)

    def _step(self, place: int) -> None:
        """Set the dual of one row to its optimum, the others held."""
        places, values = self._rows[place]
        predicted = self.mean + float(self.weights[places] @ values)
        target = self._targets[place]
        if self._bounds[place]:
            target = expected_above(target, predicted, math.sqrt(self.variance))
        change = (target - predicted - self._penalty * self._duals[place]) / (1.0 + self._penalty)
        self._duals[place] += change
        self.weights[places] += change * values

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything learned, as arrays; the rows group by group, in the order in which they will be forgotten."""
        order = [(place, group) for group, places in enumerate(self._groups) for place in places]
        rows = [self._rows[place] for place, _ in order]
        return {
            "weights": self.weights,
            "scalars": np.array([self.learned, self.mean, self.variance]),
            "sizes": np.array([len(row.places) for row in rows], np.int64),
            "places": np.concatenate([row.places for row in rows] or [np.empty(0, np.int32)]),
            "values": np.concatenate([row.values for row in rows] or [np.empty(0, np.float32)]),
            "targets": np.array([self._targets[place] for place, _ in order], float),
            "duals": np.array([self._duals[place] for place, _ in order], float),
            "bounds": np.array([self._bounds[place] for place, _ in order], bool),
            "groups": np.array([group for _, group in order], np.int64),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state of `state` in place of what was learned.

        Raises:
            ValueError: it is not one, or holds more than this model keeps.
        """
        sizes, places, values = state["sizes"], state["places"], state["values"]
        count = len(sizes)
        if any(state[name].shape != (count,) for name in ("targets", "duals", "bounds", "groups")):
            raise ValueError("rows of unequal number")
        if count > self._most_rows or not len(places) == len(values) == sizes.sum() <= self._most_entries:
            raise ValueError(f"{count} rows of {len(places)} values")
        if count and (sizes.min() < 0 or state["groups"].min() < 0 or state["groups"].max() >= GROUPS):
            raise ValueError("sizes or groups out of range")
        if len(places) and (places.min() < 0 or places.max() >= WIDTH):
            raise ValueError("places out of range")
        learned, self.mean, self.variance = state["scalars"].tolist()
        self.learned = int(learned)
        self.weights = state["weights"].copy()
        ends = np.cumsum(sizes).tolist()
        self._rows = [
            Row(places[end - size : end], values[end - size : end])
            for end, size in zip(ends, sizes, strict=True)
        ]
        self._targets = state["targets"].tolist()
        self._duals = state["duals"].tolist()
        self._bounds = state["bounds"].tolist()
        self._free = []
        self._groups = [deque() for _ in range(GROUPS)]
        for place, group in enumerate(state["groups"].tolist()):
            self._groups[group].append(place)
        self._entries = len(places)


def expected_above(bound: float, mean: float, spread: float) -> float:
    """E[t | t > bound] for a normal t of this mean and spread, at most `spread` above the bound."""
    if spread <= 0.0:
        return max(bound, mean)
    z = (bound - mean) / spread
    beyond = 0.5 * math.erfc(z / math.sqrt(2.0))
    if beyond < 1e-12:
        return bound
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return min(mean + spread * density / beyond, bound + spread)
