"""Routers: rules by hand, and properties over drawn loads."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import UserError
from parsim.router import ROUTERS, View, router_of
from parsim.router.vllm_dp import VllmDp, VllmDpOld

REQUEST = SimpleNamespace(request_id="r", prompt_tokens=8)
views_of = st.lists(
    st.builds(
        View,
        waiting=st.integers(0, 50),
        running=st.integers(0, 256),
        kv_usage=st.floats(0, 1),
        in_flight=st.integers(0, 300),
    ),
    min_size=1,
    max_size=12,
)


@given(views=views_of, name=st.sampled_from(sorted(ROUTERS)), seed=st.integers(0, 5))
def test_every_router_names_an_engine_and_the_same_one_again(views: list[View], name: str, seed: int) -> None:
    chosen = [[router_of(name, seed).choose(REQUEST, views, 0.0) for _ in range(3)] for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert all(0 <= engine < len(views) for engine in chosen[0])


@given(count=st.integers(1, 9), turns=st.integers(1, 5))
def test_on_idle_engines_turns_are_even(count: int, turns: int) -> None:
    for name in ("round-robin", "least-requests", "vllm-dp"):
        router, views = router_of(name), [View() for _ in range(count)]
        for _ in range(count * turns):
            views[router.choose(REQUEST, views, 0.0)].in_flight += 1
        assert {view.in_flight for view in views} == {turns}


@given(views=views_of)
def test_least_requests_takes_a_least_one(views: list[View]) -> None:
    chosen = router_of("least-requests").choose(REQUEST, views, 0.0)
    assert views[chosen].in_flight == min(view.in_flight for view in views)


@given(views=views_of, seed=st.integers(0, 99))
def test_power_of_two_never_takes_the_only_worst(views: list[View], seed: int) -> None:
    chosen = router_of("power-of-two", seed).choose(REQUEST, views, 0.0)
    loads = [view.in_flight for view in views]
    assert len(views) == 1 or loads[chosen] < max(loads) or loads.count(max(loads)) > 1


def test_random_takes_each_as_often() -> None:
    router = router_of("random", 3)
    counts = Counter(router.choose(REQUEST, [View()] * 4, 0.0) for _ in range(4000))
    assert all(900 < counts[engine] < 1100 for engine in range(4))


def test_vllm_dp_by_hand() -> None:
    """Scores 5 (in flight), 6 (waiting + running), 4 + 4 * 6 * 0.25 = 10: the first; then ties go on from the next."""
    views = [View(1, 2, 0.9, 5), View(0, 6, 0.9, 1), View(4, 0, 0.75, 0)]
    views[0].waiting = 0
    router = VllmDp()
    assert router.choose(REQUEST, views, 0.0) == 0
    views[0].in_flight = 6
    assert router.choose(REQUEST, views, 0.0) == 1
    # both have a score of 7 or more now but for what a snapshot says
    fresh = [View(0, 0, 0.0, 0, 1.0), View(0, 0, 0.0, 0, 1.0), View(0, 0, 0.0, 0, 1.0)]
    assert router.choose(REQUEST, fresh, 1.0) == 2
    assert router.choose(REQUEST, fresh, 1.0) == 0
    assert router.choose(REQUEST, fresh, 1.0) == 1


def test_the_old_balancer_by_hand() -> None:
    """4 * waiting + running; what it sent counts as waiting until the next snapshot."""
    router, views = VllmDpOld(), [View(0, 9), View(1, 4)]
    assert [router.choose(REQUEST, views, 0.0) for _ in range(3)] == [1, 0, 1]
    views[1].as_of_s = 0.1
    assert router.choose(REQUEST, views, 0.1) == 1


def test_an_unknown_router_is_named() -> None:
    with pytest.raises(UserError, match="did you mean 'round-robin'"):
        router_of("round-robbin")


@pytest.mark.vllm
def test_vllm_dp_decides_as_vllms_own_client() -> None:
    """Drawn snapshots, arrivals and ends: every decision is that of `DPLBAsyncMPClient`."""
    pytest.importorskip("vllm")
    import random

    from vllm.v1.engine.core_client import DPLBAsyncMPClient

    draw = random.Random(0)
    for case in range(60):
        count, clients = draw.randint(2, 16), draw.choice([1, 1, 2, 4])
        index = draw.randrange(clients)
        real = object.__new__(DPLBAsyncMPClient)
        real.client_count, real.client_index = clients, index
        real.reqs_in_flight, real.engine_inflight = {}, Counter()
        real.core_engines = [i.to_bytes(2, "little") for i in range(count)]
        real.lb_engines = [[0, 0, 0.0] for _ in range(count)]
        real.eng_start_index = count * index // clients
        mine, views, live = VllmDp(clients, index), [View() for _ in range(count)], []
        for turn in range(150):
            if draw.random() < 0.15:
                for i, view in enumerate(views):
                    view.waiting = draw.randint(0, 9) * draw.randint(0, 1)
                    view.running, view.kv_usage = draw.randint(0, 64), draw.random()
                    view.as_of_s = float(turn + 1)
                    real.lb_engines[i] = [view.waiting, view.running, view.kv_usage]
            if live and draw.random() < 0.45:
                name, engine = live.pop(draw.randrange(len(live)))
                real.engine_inflight[real.reqs_in_flight.pop(name)] -= 1
                views[engine].in_flight -= 1
            name = f"{case}-{turn}"
            asked = SimpleNamespace(request_id=name, data_parallel_rank=None, pooling_params=None)
            theirs = int.from_bytes(real.get_core_engine_for_request(asked), "little")
            chosen = mine.choose(REQUEST, views, float(turn))
            assert chosen == theirs, (case, turn)
            views[chosen].in_flight += 1
            live.append((name, chosen))
