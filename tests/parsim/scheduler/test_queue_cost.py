"""The cost of a step is that of its changes, however many requests wait: counted in comparisons of scores."""

from __future__ import annotations

import math
import random

import pytest

from parsim.scheduler.policy import Policy
from parsim.scheduler.queue import RankedQueue
from parsim.scheduler.request import WaitingRequest


class CountedScore(float):
    """A score that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: float) -> bool:
        CountedScore.comparisons += 1
        return float.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        CountedScore.comparisons += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__


@pytest.mark.parametrize("waiting", [1_000, 30_000])
def test_comparisons_a_step_grow_with_the_logarithm_of_the_queue(waiting: int) -> None:
    """Each step admits 8, takes in 8, returns 2, aborts 1 and promotes 1."""
    rng = random.Random(0)
    queue: RankedQueue[WaitingRequest] = RankedQueue(Policy("p", "score", None, 100.0))

    def arrive(number: int) -> WaitingRequest:
        request = WaitingRequest(f"r{number}", number * 1e-3, CountedScore(rng.lognormvariate(5, 1)))
        queue.add(request)
        return request

    inside = [arrive(number) for number in range(waiting)]
    steps = 300
    CountedScore.comparisons = 0
    number = waiting
    for step in range(steps):
        queue.begin_step(100.0 + step * 1e-3)
        admitted = [queue.pop() for _ in range(8)]
        for _ in range(8):
            arrive(number)
            number += 1
        for request in admitted[:2]:
            queue.add(request)
        queue.remove(inside[rng.randrange(waiting)])
    changes = 8 + 8 + 2 + 1 + 1
    assert CountedScore.comparisons / steps < 3 * changes * math.log2(waiting)


@pytest.mark.parametrize("waiting", [1_000, 20_000])
def test_promotions_out_of_turn_do_not_scan_the_promoted(waiting: int) -> None:
    """By ratio of wait to length all become overdue, the shortest first: the last to come is the first."""
    queue: RankedQueue[WaitingRequest] = RankedQueue(
        Policy("p", "score", "output_tokens", None, starvation_s_per_token=1.0)
    )
    requests = [WaitingRequest(f"r{n}", 0.0, CountedScore(waiting - n)) for n in range(waiting)]
    for request in requests:
        queue.add(request)
    CountedScore.comparisons = 0
    for step in range(waiting):
        queue.begin_step(step + 1.5)
    assert all(request.promoted for request in requests)
    assert [queue.pop() for _ in range(3)] == requests[:3]
    assert CountedScore.comparisons < 8 * waiting * math.log2(waiting)
    assert not queue._lane
