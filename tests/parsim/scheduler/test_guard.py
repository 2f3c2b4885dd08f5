"""The guard holds little of what is finished, and forgets nothing that waits."""

from __future__ import annotations

from parsim.scheduler.guard import StarvationGuard
from parsim.scheduler.request import WaitingRequest


def test_finished_requests_do_not_pile_up_before_the_threshold() -> None:
    """A server with a threshold of years serves 10,000 requests, one at a time, while one waits."""
    guard = StarvationGuard(1e9)
    waiting = WaitingRequest("waiting", 0.0)
    guard.watch(waiting)
    for number in range(10_000):
        request = WaitingRequest(f"r{number}", float(number))
        guard.watch(request)
        guard.forget(request)
    assert len(guard._by_arrival) + len(guard._forgotten) <= 4
    assert waiting in list(guard.overdue(2e9))


def test_a_request_exactly_at_the_threshold_is_not_overdue() -> None:
    guard = StarvationGuard(4.0)
    first, second = WaitingRequest("a", 0.0), WaitingRequest("b", 1.0)
    guard.watch(second)
    guard.watch(first)
    assert list(guard.overdue(4.0)) == []
    assert list(guard.overdue(5.0)) == [first]
    assert list(guard.overdue(5.1)) == [second]
