"""Guards by the ratio of wait to expected length, and ageing: by hand, and against a list sorted afresh."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import UserError
from parsim.scheduler.policy import Policy, parse_policy
from parsim.scheduler.queue import RankedQueue
from parsim.scheduler.request import WaitingRequest

Queue = RankedQueue[WaitingRequest]


def queue(**guard: float | None) -> Queue:
    """Scores are response tokens."""
    return RankedQueue(Policy("o", "score", "output_tokens", **guard))  # type: ignore[arg-type]


def add(to: Queue, name: str, arrival_s: float, tokens: float | None) -> WaitingRequest:
    request = WaitingRequest(name, arrival_s, tokens)
    to.add(request)
    return request


def names(of: Queue) -> list[str]:
    return [request.request_id for request in of]


def test_by_ratio_a_short_request_is_promoted_sooner_than_a_long_one() -> None:
    waiting = queue(starvation_s_per_token=0.5)
    for name, tokens in (("long", 100), ("short", 4), ("new", 1)):
        add(waiting, name, 0.0, tokens)
    waiting.begin_step(2.0)  # exactly at short's limit: not over it
    assert names(waiting) == ["new", "short", "long"]
    assert waiting.next_due_s() == 2.0
    waiting.begin_step(2.01)
    assert [r.promoted for r in waiting] == [True, True, False]  # 1 token: since 0.5 s
    assert names(waiting) == ["short", "new", "long"]  # the promoted in the order in which they came
    waiting.begin_step(50.01)
    assert names(waiting) == ["long", "short", "new"]


def test_with_both_guards_the_sooner_counts() -> None:
    waiting = queue(starvation_s_per_token=1.0, starvation_threshold_s=10.0)
    long, short = add(waiting, "long", 0.0, 500), add(waiting, "short", 0.0, 3)
    waiting.begin_step(5.0)
    assert (long.promoted, short.promoted) == (False, True)
    waiting.begin_step(10.5)
    assert long.promoted


def test_ageing_lets_a_second_of_waiting_weigh_so_many_tokens() -> None:
    waiting = queue(ageing_tokens_per_s=10.0)
    add(waiting, "long, early", 0.0, 100)
    add(waiting, "short, late", 9.0, 11)  # 9 s younger: 90 tokens
    add(waiting, "shorter, late", 9.0, 9)
    waiting.begin_step(9.0)
    assert names(waiting) == ["shorter, late", "long, early", "short, late"]
    waiting.begin_step(1000.0)
    assert names(waiting) == ["shorter, late", "long, early", "short, late"]


def test_a_score_that_comes_late_moves_the_limit() -> None:
    waiting = queue(starvation_s_per_token=1.0)
    request = WaitingRequest("r", 0.0)
    request.awaits_score = True
    waiting.add(request)
    waiting.begin_step(1.0)
    waiting.rescore(request, 5.0)
    waiting.begin_step(5.0)
    assert not request.promoted
    waiting.begin_step(5.1)
    assert request.promoted


@pytest.mark.parametrize(
    ("guard", "expected"),
    [({"ageing_tokens_per_s": 5.0}, ["b", "a"]), ({"starvation_s_per_token": 1.0}, ["b", "a"])],
)
def test_scores_of_another_scale_count_once_lengths_are_learned(
    guard: dict[str, float], expected: list[str]
) -> None:
    """Ascending scores -1 and -2 mean 400 and 20 tokens. Before that is known ageing is first come first served."""
    waiting: Queue = RankedQueue(Policy("p", "score", "score.p", **guard))  # type: ignore[arg-type]
    add(waiting, "a", 0.0, -1.0)
    add(waiting, "b", 0.5, -2.0)
    waiting.begin_step(1.0)
    assert names(waiting) == (["a", "b"] if "ageing_tokens_per_s" in guard else ["b", "a"])
    for number in range(64):
        done = add(waiting, f"done{number}", 0.0, -1.0 - number % 2)
        waiting.remove(done)
        waiting.finished(done, 400 if number % 2 == 0 else 20, True)
    waiting.begin_step(21.0)
    assert names(waiting) == expected
    assert [r.promoted for r in waiting] == ["starvation_s_per_token" in guard, False]


def test_ageing_goes_with_the_order_by_score_alone() -> None:
    from dataclasses import replace

    with pytest.raises(UserError, match="ageing goes with the order score"):
        RankedQueue(replace(parse_policy("hrrn"), ageing_tokens_per_s=1.0))


@given(
    ratio=st.sampled_from([None, 0.25, 1.0]),
    threshold=st.sampled_from([None, 3.0]),
    ageing=st.sampled_from([None, 0.5, 4.0]),
    arrivals=st.lists(
        st.tuples(st.integers(0, 8), st.integers(1, 12), st.booleans()), min_size=1, max_size=25
    ),
)
@settings(max_examples=120, deadline=None)
def test_the_order_is_that_of_a_list_sorted_afresh(
    ratio: float | None,
    threshold: float | None,
    ageing: float | None,
    arrivals: list[tuple[int, int, bool]],
) -> None:
    waiting = queue(
        starvation_s_per_token=ratio, starvation_threshold_s=threshold, ageing_tokens_per_s=ageing
    )
    inside: list[WaitingRequest] = []
    promoted: set[str] = set()

    def limit(r: WaitingRequest) -> float:
        by_ratio = 1e9 if ratio is None else ratio * (r.score or 0)
        return min(1e9 if threshold is None else threshold, by_ratio)

    def key(r: WaitingRequest) -> tuple[object, ...]:
        if r.request_id in promoted:
            return (0, r.seq)
        return (1, (r.score or 0) + (ageing or 0) * r.arrival_s, r.arrival_s, r.request_id)

    now_s = 0.0
    for number, (gap, tokens, serve) in enumerate(arrivals):
        now_s += gap / 2
        waiting.begin_step(now_s)
        promoted.update({r.request_id for r in inside if now_s - r.arrival_s > limit(r)})
        if serve and inside:
            inside.remove(waiting.pop())
        inside.append(add(waiting, f"r{number:02}", now_s, tokens))
        assert names(waiting) == [r.request_id for r in sorted(inside, key=key)]
