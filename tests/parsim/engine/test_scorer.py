"""The scorer in virtual time, alone and beside the engine."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.engine.config import EngineConfig
from parsim.engine.run import Outcome, Workload, run
from parsim.engine.scorer import VirtualScorer
from parsim.engine.scoring_cost import MAX_WAIT_S, ScoringCost, read_cost
from parsim.engine.step_log import StepLog
from parsim.engine.step_time import StepTime
from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES, parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace

COST = ScoringCost(base_s=0.1, prompt_s=0.01, token_s=0.001, max_tokens=100, max_batch=2)
SLOTS = EngineConfig(
    num_gpu_blocks=101,
    max_num_seqs=1,
    max_num_batched_tokens=64,
    max_model_len=64,
    async_scheduling=False,
    step_time=StepTime(base_s=1.0),
)


def test_seconds_by_hand() -> None:
    """0.1 + 2 * 0.01 + (50 + 100) * 0.001: the second prompt's 400 tokens are cut to 100."""
    assert COST.seconds([50, 400]) == pytest.approx(0.27)


def test_batches_by_hand() -> None:
    """The first is alone: 1.0 + 0.1 + 0.01 + 0.01 = 1.12. Three came meanwhile: the two newest are one batch, which
    ends at 1.12 + 0.1 + 0.02 + 0.02 = 1.26, then the oldest at 1.26 + 0.12 = 1.38."""
    scorer: VirtualScorer[str] = VirtualScorer(COST)
    for name, at in (("a", 1.0), ("b", 1.05), ("c", 1.06), ("d", 1.07)):
        scorer.submit(name, 10, at)
    assert scorer.poll(1.119) == []
    assert scorer.next_s == pytest.approx(1.12)
    assert scorer.poll(1.121) == ["a"]
    assert sorted(scorer.poll(1.27)) == ["c", "d"]
    assert scorer.poll(1.37) == []
    assert scorer.poll(1.39) == ["b"]
    assert scorer.busy_s == pytest.approx(3 * 0.1 + 4 * 0.01 + 40 * 0.001)
    assert scorer.next_s == float("inf")


def test_requests_of_one_moment_are_one_batch() -> None:
    scorer: VirtualScorer[str] = VirtualScorer(COST)
    scorer.submit("a", 10, 5.0)
    scorer.submit("b", 10, 5.0)
    assert scorer.poll(5.0) == []
    assert sorted(scorer.poll(5.15)) == ["a", "b"]


def test_who_waits_too_long_stays_without_a_score() -> None:
    """The first batch takes the whole bound and more: what came with it expires."""
    slow = ScoringCost(base_s=MAX_WAIT_S + 1, prompt_s=0, token_s=0, max_batch=1)
    scorer: VirtualScorer[str] = VirtualScorer(slow)
    scorer.submit("a", 1, 0.0)
    scorer.submit("b", 1, 0.0)
    assert scorer.poll(0.0) == []
    assert scorer.poll(10 * MAX_WAIT_S) == ["b"]
    assert scorer.expired == 1


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(1, 200)), min_size=1, max_size=30),
    st.floats(0.001, 2),
    st.integers(1, 5),
)
def test_every_request_is_answered_once_or_expires(
    rows: list[tuple[float, int]], base_s: float, max_batch: int
) -> None:
    cost = ScoringCost(base_s=base_s, prompt_s=0.01, token_s=0.001, max_batch=max_batch)
    scorer: VirtualScorer[int] = VirtualScorer(cost)
    answered: list[int] = []
    for number, (at, tokens) in enumerate(sorted(rows)):
        scorer.submit(number, tokens, at)
        ready = scorer.poll(at)
        assert all(at - sorted(rows)[one][0] >= cost.seconds([sorted(rows)[one][1]]) - 1e-9 for one in ready)
        answered += ready
    answered += scorer.poll(1e9)
    assert len(answered) == len(set(answered)) == len(rows) - scorer.expired


def serve(scoring: ScoringCost, rows: list[tuple[float, int, float]], observed: bool = True) -> Outcome:
    """One slot, steps of a second; rows are (arrival_s, output_tokens, what the predictor will say)."""
    arrivals, tokens, scores = zip(*rows, strict=True)
    workload = Workload([f"r{i}" for i in range(len(rows))], arrivals, [4] * len(rows), tokens, scores)
    observer = StepLog() if observed else None
    return run(workload, SLOTS, POLICIES["pars"], scoring=scoring, observer=observer)


@pytest.mark.parametrize("observed", [True, False])
def test_a_score_that_comes_in_time_orders_the_queue_and_a_late_one_does_not(observed: bool) -> None:
    """r0 runs from 0 to 3 s; r1 (long) and r2 (short) wait. With scores after half a second r2 goes first; with scores
    after nine seconds both wait at the same rank, and r1 came first."""
    rows = [(0.0, 3, 0.0), (0.5, 5, 9.0), (0.6, 1, 1.0)]
    quick = serve(ScoringCost(base_s=0.5, prompt_s=0, token_s=0), rows, observed)
    assert list(quick.times["first_scheduled_s"]) == [0.0, 4.0, 3.0]
    assert list(quick.times["scored_s"]) == [1.0, 2.0, 2.0]
    late = serve(ScoringCost(base_s=9.0, prompt_s=0, token_s=0), rows, observed)
    assert list(late.times["first_scheduled_s"]) == [0.0, 3.0, 8.0]


def test_a_shared_core_stands_still() -> None:
    """The scorer's two seconds are added to the step in which its batch begins: 1 + 2, then 1 a token."""
    cost = ScoringCost(base_s=2.0, prompt_s=0, token_s=0)
    alone = serve(cost, [(0.0, 3, 1.0)])
    shared = serve(cost.model_copy(update={"shares_core": True}), [(0.0, 3, 1.0)])
    assert [*alone.times["finish_s"], *shared.times["finish_s"]] == [3.0, 5.0]


def trace(rows: int) -> Trace:
    numbers = range(rows)
    return Trace(
        pl.DataFrame(
            {
                "request_id": [f"r{i}" for i in numbers],
                "arrival_s": [i * 0.3 for i in numbers],
                "prompt_tokens": [4] * rows,
                "output_tokens": [1 + i * 7 % 11 for i in numbers],
                "score.pars": [float(i * 7 % 11) for i in numbers],
            }
        ),
        {"name": "made up"},
    )


def test_scores_without_a_cost_are_there_on_arrival_and_dear_ones_help_less() -> None:
    def mean_wait_s(scoring: ScoringCost | None) -> float:
        run = simulate(trace(60), SLOTS, POLICIES["pars"], scoring=scoring)
        wait = run.requests["first_scheduled_s"] - run.requests["arrival_s"]
        return float(wait.to_numpy().mean())

    free, nothing = mean_wait_s(None), mean_wait_s(ScoringCost(base_s=0, prompt_s=0, token_s=0))
    dear, never = (
        mean_wait_s(ScoringCost(base_s=s, prompt_s=0, token_s=0, max_batch=1)) for s in (8.0, 3600.0)
    )
    assert free <= nothing < dear <= never


def test_what_the_run_says_of_scoring() -> None:
    """Ten arrivals, one every 0.3 s, are taken in at 0 (one), 1, 2 and 3 s (three each): four batches of 0.2 s."""
    run = simulate(trace(10), SLOTS, POLICIES["pars"], scoring=ScoringCost(base_s=0.2, prompt_s=0, token_s=0))
    assert run.metadata["scoring_s_per_request"] == pytest.approx(0.08)
    assert run.metadata["admitted_unscored"] == pytest.approx(0.2)  # two find an idle engine
    delay = run.requests["scored_s"] - run.requests["arrival_s"]
    assert run.metadata["mean_scoring_delay_s"] == pytest.approx(delay.to_numpy().mean())
    assert delay.min() >= 0.2 - 1e-9  # type: ignore[operator]


@pytest.mark.parametrize("name", ["fcfs", "oracle", "prompt-sjf"])
def test_a_policy_without_a_predictor_pays_nothing(name: str) -> None:
    dear = ScoringCost(base_s=50, prompt_s=0, token_s=0)
    paid = simulate(trace(30), SLOTS, POLICIES[name], scoring=dear)
    assert paid.requests.equals(simulate(trace(30), SLOTS, POLICIES[name]).requests)
    assert "scoring_s_per_request" not in paid.metadata


def test_emulated_scores_cost_too() -> None:
    run = simulate(
        trace(30),
        SLOTS,
        parse_policy("emulated(tau=0.5)"),
        scoring=ScoringCost(base_s=0.1, prompt_s=0, token_s=0),
    )
    assert run.metadata["scoring_s_per_request"] > 0


def test_costs_by_name_and_file(tmp_path: Path) -> None:
    assert read_cost("free") is None
    shipped = read_cost("shipped")
    assert shipped is not None and 0 < shipped.seconds([100]) < 1
    file = tmp_path / "cost.json"
    file.write_text(COST.model_dump_json())
    assert read_cost(str(file)) == COST
    with pytest.raises(UserError, match="measure one with"):
        read_cost(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("", "line 1: not valid JSON"),
        ("[1]", "found list"),
        ('{"base_s": -1, "prompt_s": 0, "token_s": 0}', r"base_s.*\(got -1\)"),
        ('{"base_s": NaN, "prompt_s": 0, "token_s": 0}', "base_s.*finite"),
        ('{"bsae_s": 1, "prompt_s": 0, "token_s": 0}', "no field 'bsae_s'; did you mean 'base_s'"),
        ('{"base_s": 1, "base_s": 2}', "has 'base_s' twice"),
        ('{"base_s": 1e300, "prompt_s": 0, "token_s": 0}', r"takes 1e\+300 s, at most 3600"),
        ('{"base_s": 0, "prompt_s": 0, "token_s": 40}', "takes 5.12e[+]03 s"),
        ('{"base_s": 0, "prompt_s": 0, "token_s": 1, "max_tokens": 1' + 400 * "0" + "}", "max_tokens"),
        ('{"base_s": 0, "prompt_s": 0, "token_s": 0, "max_batch": 0}', "max_batch"),
    ],
)
def test_a_wrong_cost_is_one_line_with_its_field(tmp_path: Path, fields: str, said: str) -> None:
    file = tmp_path / "cost.json"
    file.write_text(fields)
    with pytest.raises(UserError, match=said) as caught:
        read_cost(str(file))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_requests_that_never_get_a_score_are_told_apart() -> None:
    """Three arrive at once, a batch of one takes 2 s and all are served in 3: the first batch alone ends in time."""
    frame = trace(3).frame.with_columns(pl.lit(0.0).alias("arrival_s"), pl.lit(1).alias("output_tokens"))
    cost = ScoringCost(base_s=2.0, prompt_s=0, token_s=0, max_batch=1)
    run = simulate(Trace(frame, {}), SLOTS, POLICIES["pars"], scoring=cost)
    assert run.metadata["never_scored"] == pytest.approx(2 / 3)
    never = simulate(
        trace(3), SLOTS, POLICIES["pars"], scoring=ScoringCost(base_s=3600, prompt_s=0, token_s=0)
    )
    assert never.metadata["never_scored"] == 1.0
    assert never.metadata["scorer_core_share"] == pytest.approx(
        1.0
    )  # of the time until the last finish, no more
