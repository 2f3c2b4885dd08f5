"""The order of waiting requests: one sort key a request, smallest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from parsim.scheduler.request import WaitingRequest

OrderName = Literal["fcfs", "score", "hrrn"]
Key = tuple[float, float, str]


def score_key(request: WaitingRequest, now_s: float) -> Key:
    """Ascending rank (predicted length), then arrival, then id: shortest predicted job first."""
    return (request.rank, request.arrival_s, request.request_id)


def hrrn_key(request: WaitingRequest, now_s: float) -> Key:
    """Highest response ratio next: (wait + expected length) / expected length, descending.

    The rank is taken as the expected length in tokens (at least 1), so a second of waiting weighs as much as
    a token of length. Source: Brinch Hansen, "Operating System Principles", 1973.
    """
    return (-(now_s - request.arrival_s) / max(request.rank, 1.0), request.arrival_s, request.request_id)


KEYS: dict[OrderName, Callable[[WaitingRequest, float], Key]] = {"score": score_key, "hrrn": hrrn_key}
"""Key functions of the ranked orders; `fcfs` needs none, its order is that of enqueueing."""

TIME_VARYING: frozenset[OrderName] = frozenset({"hrrn"})
"""Orders whose keys change while a request waits: re-sorted once a step, O(waiting)."""
