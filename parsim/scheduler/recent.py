"""The last so many numbers, and where one stands among them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque


class Recent:
    """The last `size` finite numbers: their quantiles, whatever a few of them are. O(log size) comparisons each."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._in_turn: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Take in one; the oldest is forgotten."""
        if len(self._in_turn) == self._size:
            del self._sorted[bisect_left(self._sorted, self._in_turn.popleft())]
        self._in_turn.append(value)
        insort(self._sorted, value)

    def quantile(self, share: float) -> float:
        """The lower empirical quantile; `share` in [0, 1].

        Raises:
            IndexError: there are none.
        """
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)]

    def place(self, value: float) -> float:
        """The share of them below `value`, equal ones counted half; 0.5 where there are none."""
        if not self._sorted:
            return 0.5
        return (bisect_left(self._sorted, value) + bisect_right(self._sorted, value)) / (
            2 * len(self._sorted)
        )
