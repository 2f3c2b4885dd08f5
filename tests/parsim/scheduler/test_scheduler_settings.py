"""Settings of the scheduler inside an engine: where they come from, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.scheduler.settings import SchedulerSettings, read_settings


def test_defaults_are_the_papers_policy_with_its_own_guard_and_vllms_victim() -> None:
    policy = read_settings({}, {}).resolved_policy()
    assert (policy.name, policy.starvation_threshold_s, policy.victim) == ("pars", 120.0, "last")


def test_mapping_wins_over_environment_and_environment_over_default() -> None:
    environment = {"PARSIM_POLICY": "fcfs", "PARSIM_VICTIM": "worst", "PARSIM_STARVATION_THRESHOLD_S": "7.5"}
    settings = read_settings({"policy": "oracle"}, environment)
    assert settings == SchedulerSettings(policy="oracle", starvation_threshold_s=7.5, victim="worst")


@pytest.mark.parametrize("none", [None, "none", "None", ""])
def test_a_guard_can_be_switched_off(none: str | None) -> None:
    assert (
        read_settings({"starvation_threshold_s": none}, {}).resolved_policy().starvation_threshold_s is None
    )


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"policcy": "pars"}, "did you mean 'policy'"),
        ({"policy": "parss"}, "did you mean 'pars'"),
        ({"policy": "none"}, "expected the name of a policy"),
        ({"starvation_threshold_s": "soon"}, "expected seconds"),
        ({"starvation_threshold_s": -1}, "expected seconds >= 0"),
        ({"starvation_threshold_s": "nan"}, "expected seconds >= 0"),
        ({"victim": "first"}, "one of last, worst"),
        ({"score_source": "header"}, "one of extra_args, priority"),
        ({"metrics_port": 70_000}, "expected a TCP port"),
    ],
)
def test_what_is_refused_and_how(config: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_settings(config, {})


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(ValueError, match="PARSIM_VICTIM is 'first'"):
        read_settings({}, {"PARSIM_VICTIM": "first"})


NO_NUMBERS = (True, False, float("nan"), 10**400, -(10**400), "x", [1], {"a": 1}, -1, "-1", 1j)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize(
    "name", ["starvation_threshold_s", "starvation_s_per_token", "ageing_tokens_per_s", "metrics_port"]
)
def test_what_is_no_number_is_refused_in_one_short_line(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"additional_config parsim.{name} is") as raised:
        read_settings({name: value}, {})
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("port", [float("inf"), 8000.5, 0, 65536, 1e300])
def test_a_port_is_a_whole_number_of_a_port(port: float) -> None:
    with pytest.raises(ValueError, match="expected a TCP port"):
        read_settings({"metrics_port": port}, {})


@pytest.mark.parametrize("value", [3, ["a"], {"a": 1}, True, "a\0b"], ids=repr)
@pytest.mark.parametrize("name", ["policy", "scorer", "learner_state", "record"])
def test_text_is_text(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"additional_config parsim.{name} is"):
        read_settings({name: value}, {})


@pytest.mark.parametrize("config", ["pars", ["policy"], 3, None])
def test_settings_come_by_name(config: Any) -> None:
    with pytest.raises(ValueError, match="expected settings by name"):
        read_settings(config, {})
    with pytest.raises(ValueError, match="no setting"):
        read_settings({1: 2}, {})  # type: ignore[dict-item]
