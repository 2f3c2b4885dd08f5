"""Named policies."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.engine.request import EngineRequest
from parsim.errors import UserError
from parsim.scheduler.order import order_of
from parsim.scheduler.policy import POLICIES, as_policy, parse_policy


def test_the_papers_policies_and_their_columns() -> None:
    columns = {name: parse_policy(name).score for name in ("fcfs", "pointwise", "listwise", "pars", "oracle")}
    assert columns == {
        "fcfs": None,
        "pointwise": "score.pointwise",
        "listwise": "score.listwise",
        "pars": "score.pars",
        "oracle": "output_tokens",
    }
    assert POLICIES["pars"].starvation_threshold_s == 120.0
    assert POLICIES["fcfs"].starvation_threshold_s is None


def test_an_emulated_policy_says_so() -> None:
    assert parse_policy("emulated(tau=0.8)").emulated_tau == 0.8
    assert parse_policy("emulated(0.8)").name == "emulated(tau=0.8)"
    assert POLICIES["pars"].emulated(0.6).label == "pars (emulated, tau 0.60)"
    assert POLICIES["pars"].label == "pars"


@pytest.mark.parametrize("text", ["par", "PARS", "emulated(tau=2)", "emulated(tau=)", "", "emulated(1.2.3)"])
def test_an_unknown_policy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="policy"):
        parse_policy(text)


@pytest.mark.parametrize("name", ["fcfs", "oracle", "hrrn", "prompt-sjf"])
def test_a_policy_without_a_predictor_cannot_be_emulated(name: str) -> None:
    """HRRN, for one, would take normal scores for tokens."""
    with pytest.raises(ValueError, match=r"has no predictor to emulate; take emulated\(tau=0\.5\)"):
        POLICIES[name].emulated(0.5)


@pytest.mark.parametrize(
    ("name", "ranked", "clairvoyant", "runs"),
    [
        ("fcfs", False, False, True),
        ("pars", True, False, True),
        ("prompt-sjf", True, False, True),
        ("oracle", True, True, False),
        ("hrrn", True, True, False),
        ("emulated(tau=0.5)", True, False, False),
    ],
)
def test_what_a_policy_needs_and_where_it_runs(
    name: str, ranked: bool, clairvoyant: bool, runs: bool
) -> None:
    policy = parse_policy(name)
    assert (policy.ranked, policy.clairvoyant, policy.runs_in_vllm) == (ranked, clairvoyant, runs)


def test_a_policy_runs_where_only_its_scores_are_emulated() -> None:
    assert POLICIES["pars"].emulated(0.5).runs_in_vllm


@pytest.mark.parametrize("limit", [0, 7, 40])
def test_an_order_sees_what_every_engine_knows_and_changes_nothing(limit: int) -> None:
    def peeks(request: Any) -> float:  # a length for some requests only: it could run in no engine
        return request.output_tokens if request.prompt_tokens > limit else 0

    def meddles(request: Any) -> float:
        request.arrival_s = request.rank = -1.0
        return 1.0

    real = EngineRequest(0, "a", 5.0, prompt_tokens=limit + 1, output_tokens=9)
    if limit == 0:
        assert order_of(peeks).clairvoyant and order_of(peeks).key(real, 6.0)[0] == (9.0,)
    else:
        assert not order_of(peeks).clairvoyant
        with pytest.raises(UserError, match="output_tokens of some requests only"):
            order_of(peeks).key(real, 6.0)
    order_of(meddles).key(real, 6.0)
    assert (real.arrival_s, real.rank) == (5.0, 0.0)


@pytest.mark.parametrize("name", sorted(set(EngineRequest.__slots__) - {"output_tokens"}))
def test_an_order_cannot_read_what_only_the_simulated_engine_has(name: str) -> None:
    real = EngineRequest(0, "a", 5.0, prompt_tokens=3, output_tokens=9)
    with pytest.raises(UserError, match=f"a request has no {name}"):
        order_of(lambda request: getattr(request, name)).key(real, 6.0)


@pytest.mark.parametrize("policy", [3, None, ["pars"], {"a": 1}, 0.5])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(UserError, match="neither a name nor a function"):
        as_policy(policy)


@pytest.mark.parametrize("tau", ["nan", "inf", "1e9", "-1.5", "", "half", "0.5.5", "--1"])
def test_a_tau_that_is_none_is_said_to_be_out_of_range(tau: str) -> None:
    with pytest.raises(UserError, match="tau must lie between -1 and 1"):
        parse_policy(f"emulated(tau={tau})")


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_known_name_in_other_letters_is_the_one_that_is_proposed(name: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{name}'"):
        parse_policy(name.upper())
