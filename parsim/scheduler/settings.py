"""How the scheduler is configured inside a serving engine: a mapping, or the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import Any, Literal, get_args

from parsim.errors import closest, nearest
from parsim.scheduler.policy import POLICIES, SCORE_PREFIX, Policy, as_policy
from parsim.scheduler.victim import VictimRule

ScoreSource = Literal["extra_args", "priority", "scorer"]

SCHEDULER_CLASS = "parsim.scheduler.vllm.ParsScheduler"
"""What vLLM's `--scheduler-cls` takes."""
ENVIRONMENT_PREFIX = "PARSIM_"
PREDICTOR_VARIABLE = "PARSIM_PREDICTOR"
"""Environment variable: the predictor (shipped name or folder) that the shipped scorer loads."""
SCORE_KEY = "pars_score"
"""Key of a request's score in `SamplingParams.extra_args` (`vllm_xargs` over HTTP)."""
APP_KEY = "pars_app"
"""Key of the name of the application, template or client that sent a request, in the same place."""


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of the scheduler in an engine.

    Attributes:
        policy: as `parsim.scheduler.policy.parse_policy` reads it, or a policy itself. The NAME of a predictor of
            one's own is a policy where a scorer is set or PARSIM_PREDICTOR names it; `score.NAME` is one always.
        starvation_threshold_s: seconds after which a waiting request is promoted; None for no guard;
            "default" for the policy's own.
        starvation_s_per_token: seconds of waiting for each expected response token after which a request is promoted.
        ageing_tokens_per_s: expected response tokens by which a second of waiting shortens a request.
        victim: who is preempted, `last` or `worst`; None for the policy's own.
        score_source: where a request carries its score: `extra_args` (key `pars_score`), `priority`, where 0 is none
            unless `priority_zero` is set, or `scorer`: nowhere, what clients claim is ignored.
        scorer: "package.module:name" of a callable that is given the model's name and returns a
            `parsim.scheduler.scoring.Scorer`; `online` for the one that learns while it serves; None for none. It is
            asked about requests that carry no score.
        learner_state: file that the online learner keeps its state in; None for none.
        do_no_harm: scores order requests only while they rank what finishes; None: wherever an order goes by scores.
        priority_zero: with `score_source` `priority`, a priority of 0, vLLM's default, is a score.
        shadow: scorers that are asked about every request and not obeyed, by name (`parsim.learner.shadow`).
        record: folder that receives a trace of what was served; None for none.
        record_text: with `record`, also the prompts' token ids.
        metrics_port: TCP port on which Prometheus finds the scheduler's counters; None for none.
    """

    policy: str | Policy = "pars"
    starvation_threshold_s: float | Literal["default"] | None = "default"
    victim: VictimRule | None = None
    score_source: ScoreSource = "extra_args"
    scorer: str | None = None
    metrics_port: int | None = None
    learner_state: str | None = None
    do_no_harm: bool | None = None
    priority_zero: bool = False
    shadow: tuple[str, ...] = ()
    record: str | None = None
    record_text: bool = False
    starvation_s_per_token: float | None = None
    ageing_tokens_per_s: float | None = None

    @property
    def judged(self) -> bool:
        """Whether a judge watches the scores: where the order goes by any."""
        policy = self.resolved_policy()
        return self.do_no_harm is not False and (policy.needs_scores or policy.ranks_by_prompt)

    def resolved_policy(self) -> Policy:
        """The policy with the threshold and victim that were set in place of its own."""
        policy = as_policy(self.policy)
        if self.starvation_threshold_s != "default":
            policy = replace(policy, starvation_threshold_s=self.starvation_threshold_s)
        if self.victim is not None:
            policy = replace(policy, victim=self.victim)
        if self.starvation_s_per_token is not None:
            policy = replace(policy, starvation_s_per_token=self.starvation_s_per_token)
        if self.ageing_tokens_per_s is not None:
            policy = replace(policy, ageing_tokens_per_s=self.ageing_tokens_per_s)
        policy.aged_order  # noqa: B018 (refuses what does not go together)
        return policy


def settings_of(policy: Policy) -> dict[str, Any]:
    """The settings that serve by this policy; JSON, but where its order is a Python function."""
    return {
        "policy": policy if callable(policy.order) else policy.reference,
        "starvation_threshold_s": policy.starvation_threshold_s,
        "starvation_s_per_token": policy.starvation_s_per_token,
        "ageing_tokens_per_s": policy.ageing_tokens_per_s,
        "victim": policy.victim,
        "do_no_harm": policy.do_no_harm,
    }


def read_settings(config: Mapping[str, Any], environment: Mapping[str, str]) -> SchedulerSettings:
    """The settings in `config`, else in PARSIM_POLICY, PARSIM_VICTIM, ..., else the defaults.

    Raises:
        ValueError: an unknown setting (the nearest name is given), or a value that is not allowed.
    """
    if not isinstance(config, Mapping):
        raise ValueError(
            f"parsim scheduler: additional_config parsim is {config!r}; expected settings by name"
        )
    names = [field.name for field in fields(SchedulerSettings)]
    for name in config:
        if name not in names:
            hint = nearest(str(name), names) or f" (known: {', '.join(names)})"
            raise ValueError(f"parsim scheduler: no setting {name!r}{hint}")
    values: dict[str, Any] = {}
    for name in names:
        variable = ENVIRONMENT_PREFIX + name.upper()
        if name in config:
            values[name] = _value(name, config[name], f"additional_config parsim.{name}")
        elif variable in environment:
            values[name] = _value(name, environment[variable], variable)
    if isinstance(values.get("policy"), str):
        values["policy"] = _own_predictor(values["policy"], values.get("scorer"), environment)
    settings = SchedulerSettings(**values)
    settings.resolved_policy()
    return settings


def _own_predictor(policy: str, scorer: str | None, environment: Mapping[str, str]) -> str:
    """The policy; `score.NAME` where it is the bare NAME of a predictor at work here and like no known one."""
    plain = policy.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not plain or policy in POLICIES or policy.startswith(SCORE_PREFIX):
        return policy
    named = PurePath(environment.get(PREDICTOR_VARIABLE, "")).name == policy
    return (
        SCORE_PREFIX + policy
        if named or (scorer is not None and closest(policy, POLICIES, 0.7) is None)
        else policy
    )


def _value(name: str, raw: Any, where: str) -> Any:
    if name == "policy" and (isinstance(raw, Policy) or callable(raw)):
        return as_policy(raw)
    if raw is None or (isinstance(raw, str) and raw.lower() in ("none", "")):
        return None if name != "policy" else _fail(where, raw, "the name of a policy")
    parse = _PARSERS.get(name)
    return parse(raw, where) if parse else _text(raw, where)


def _text(raw: Any, where: str) -> str:
    if isinstance(raw, str | PurePath) and "\0" not in str(raw):
        return str(raw)
    return _fail(where, raw, "text")


def _number(raw: Any) -> float:
    """As a number; NaN where it is none, or one that is too large. A switch is no number."""
    try:
        return float("nan") if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _rate(raw: Any, where: str) -> float:
    rate = _number(raw)
    return rate if 0 <= rate < float("inf") else _fail(where, raw, "a number of 0 or more, or 'none'")


def _threshold_s(raw: Any, where: str) -> float | str:
    if raw == "default":
        return "default"
    seconds = _number(raw)
    return seconds if seconds >= 0 else _fail(where, raw, "seconds >= 0, or 'none' for no guard")


def _one_of(*allowed: str) -> Callable[[Any, str], str]:
    def parse(raw: Any, where: str) -> str:
        return raw if raw in allowed else _fail(where, raw, f"one of {', '.join(allowed)}")

    return parse


def _switch(raw: Any, where: str) -> bool:
    switches = {"true": True, "1": True, "false": False, "0": False}
    found = raw if isinstance(raw, bool) else switches.get(str(raw).lower())
    return found if found is not None else _fail(where, raw, "true or false")


def _names(raw: Any, where: str) -> tuple[str, ...]:
    names = raw.split(",") if isinstance(raw, str) else raw
    if isinstance(names, list | tuple) and all(isinstance(name, str) and name.strip() for name in names):
        return tuple(name.strip() for name in names)
    return _fail(where, raw, "a list of names")


def _port(raw: Any, where: str) -> int:
    port = _number(raw)
    return int(port) if 0 < port < 65536 and port == int(port) else _fail(where, raw, "a TCP port")


def _fail(where: str, raw: Any, expected: str) -> Any:
    given = (
        repr(raw)[:80] if not isinstance(raw, int) or abs(raw) < 10**80 else "a number of more than 80 digits"
    )
    raise ValueError(f"parsim scheduler: {where} is {given}; expected {expected}")


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "starvation_threshold_s": _threshold_s,
    "starvation_s_per_token": _rate,
    "ageing_tokens_per_s": _rate,
    "victim": _one_of(*get_args(VictimRule)),
    "score_source": _one_of(*get_args(ScoreSource)),
    "metrics_port": _port,
    "do_no_harm": _switch,
    "priority_zero": _switch,
    "shadow": _names,
    "record_text": _switch,
}
