"""Scores that do not rank are not used, those that do are; no client gains by what it claims."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
import pytest

from parsim.learner.claims import CLIENTS, PROVEN, UNPROVEN, Claims
from parsim.learner.judge import MOST_RUNNING, WINDOW, ScoreJudge
from parsim.scheduler.request import WaitingRequest


class Service:
    """Requests are admitted one by one, 40 run at a time, and each ends after as many turns as it has tokens."""

    def __init__(self, judge: ScoreJudge, seed: int, slots: int = 40) -> None:
        self.judge, self.rng, self.slots = judge, np.random.default_rng(seed), slots
        self.running: list[tuple[int, int, WaitingRequest]] = []
        self.number = 0
        self.turn = 0

    def serve(self, count: int, score: Callable[[float], float | None], claimant: str = "") -> list[bool]:
        """Whether scores were trusted after each of `count` requests; `score` is given a normal draw, the higher
        the longer the response."""
        trusted = []
        for _ in range(count):
            draw = float(self.rng.normal())
            length = max(1, int(40 * math.exp(draw)))
            request = WaitingRequest(f"r{self.number}", 0.0, score(draw))
            request.claimant = claimant
            self.number += 1
            heard = self.judge.heard(request)
            if heard is not None:
                request.rank = heard
            while len(self.running) >= self.slots:
                self.turn += 1
                for one in [one for one in self.running if one[0] <= self.turn]:
                    self.running.remove(one)
                    self.judge.finished(one[2], one[1], True)
                self.judge.reassess()
            self.judge.admitted(request)
            self.running.append((self.turn + length, length, request))
            trusted.append(self.judge.trusted)
        return trusted


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scores_that_rank_come_into_use_and_go_out_of_it_when_they_turn(seed: int) -> None:
    judge = ScoreJudge()
    service = Service(judge, seed)
    noise = np.random.default_rng(100 + seed)
    good = service.serve(1000, lambda draw: draw + float(noise.normal()))
    assert not good[40] and all(good[300:])
    turned = service.serve(1000, lambda draw: -draw + float(noise.normal()))
    assert not any(turned[300:])
    back = service.serve(1500, lambda draw: draw + float(noise.normal()))
    assert all(back[900:])
    assert (judge.trusted_times, judge.distrusted_times) == (2, 1)


@pytest.mark.parametrize("kind", ["backwards", "noise", "constant", "nan", "none", "infinite"])
@pytest.mark.parametrize("seed", [1, 2])
def test_scores_that_do_not_rank_are_never_used(kind: str, seed: int) -> None:
    noise = np.random.default_rng(100 + seed)
    score: dict[str, Callable[[float], float | None]] = {
        "backwards": lambda draw: -draw + 2 * float(noise.normal()),
        "noise": lambda draw: float(noise.normal()),
        "constant": lambda draw: 7.0,
        "nan": lambda draw: float("nan"),
        "none": lambda draw: None,
        "infinite": lambda draw: float("-inf"),
    }
    judge = ScoreJudge()
    assert not any(Service(judge, seed).serve(3000, score[kind]))


def test_when_a_request_began_is_not_taken_for_how_long_it_is() -> None:
    """Scores that grow with time and say nothing else: those that began late and finished are short, so the finished
    ones alone show tau far below 0 while the service fills."""
    judge = ScoreJudge()
    service = Service(judge, 4, slots=300)
    service.serve(600, lambda draw: float(service.number))
    assert abs(judge.tau.value) < 3 * judge.tau.error


def test_a_change_is_logged_in_one_line_and_only_then(caplog: pytest.LogCaptureFixture) -> None:

    with caplog.at_level(logging.INFO, logger="vllm.parsim"):
        service = Service(ScoreJudge(), 1)
        service.serve(800, lambda draw: draw)
        service.serve(800, lambda draw: -draw)
    assert [record.getMessage().split(":")[1].split(",")[0].strip() for record in caplog.records] == [
        "scores order requests",
        "scores do not rank",
    ]


def test_an_absurd_score_is_moved_into_the_plausible_range_and_counted() -> None:
    judge = ScoreJudge()
    for number in range(100):
        judge.heard(WaitingRequest(f"r{number}", 0.0, float(number)))
    assert judge.clipped == 0
    low, high = (judge.heard(WaitingRequest("x", 0.0, score)) for score in (-1e300, 1e300))
    assert low is not None and high is not None
    assert judge.clipped == 2 and -2000 < low < 0 < 99 < high < 2000


def test_a_flood_of_one_absurd_value_does_not_shut_out_the_others_for_good() -> None:
    judge = ScoreJudge()
    for number in range(1000):
        judge.heard(WaitingRequest(f"r{number}", 0.0, -1e9))
    ranks = [judge.heard(WaitingRequest(f"s{number}", 0.0, float(number % 50))) for number in range(600)]
    assert ranks[300:] == [float(number % 50) for number in range(300, 600)]


def test_nothing_is_kept_of_requests_that_left() -> None:
    judge = ScoreJudge()
    rng = np.random.default_rng(1)
    for number in range(3 * MOST_RUNNING):
        request = WaitingRequest(f"r{number}", 0.0, float(rng.random()))
        request.claimant = f"client {number}"
        judge.heard(request)
        if number % 3:
            judge.admitted(request)
            judge.admitted(request)  # after a preemption
        judge.finished(request, 5 + number % 9, (True, False, None)[number % 3])
        judge.reassess()
    assert not judge._running and not judge._claimed and len(judge._claims) <= CLIENTS
    assert len(judge._watched) <= WINDOW + 64
    for number in range(2 * MOST_RUNNING):  # admitted, and never heard of again
        judge.admitted(WaitingRequest(f"lost{number}", 0.0, 1.0))
    assert len(judge._running) <= MOST_RUNNING


def test_a_client_whose_claims_do_not_come_true_is_set_aside_and_can_come_back() -> None:
    claims = Claims()
    rng = np.random.default_rng(2)

    def serve(name: str, count: int, lie: bool) -> list[bool]:
        used = []
        for _ in range(count):
            place = float(rng.random())
            used.append(claims.believed(name))
            claims.finished(name, 0.0 if lie else place, int(1000 * place) + 1)
        return used

    serve("others", 300, lie=False)
    assert all(serve("honest", 100, lie=False))
    lies = serve("liar", 200, lie=True)
    assert all(lies[:PROVEN]) and not any(lies[PROVEN + 10 :])
    assert all(serve("liar", 300, lie=False)[250:])
    assert all(serve("honest", 100, lie=False))


def test_a_client_without_a_record_overtakes_with_few_requests_at_once() -> None:
    claims = Claims()
    assert [claims.believed("new") for _ in range(1000)] == [True] * UNPROVEN + [False] * (1000 - UNPROVEN)
    for _ in range(1000):
        claims.finished("new", 0.5, None)  # all aborted: still no record
    assert claims.believed("new")
