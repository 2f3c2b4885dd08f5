"""Named policies."""

from __future__ import annotations

import pytest

from parsim.scheduler.policy import POLICIES, parse_policy


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
