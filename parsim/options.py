"""Options that several commands share: how they are declared, and from text to values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from parsim.errors import UserError

if TYPE_CHECKING:
    from parsim.scheduler.policy import Policy

TraceArgument = Annotated[str, typer.Argument(help="Trace file in any known format, or `bundled`.")]
Engine = Annotated[
    str, typer.Option("--engine", help="Preset MODEL-GPU, a YAML or JSON file, or with --gpu a model.")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change an engine field; repeatable."),
]
Emulate = Annotated[
    list[str] | None,
    typer.Option(
        "--emulate",
        metavar="POLICY=TAU",
        help="Emulate a predictor at this Kendall tau-b; repeatable.",
    ),
]
Victim = Annotated[str | None, typer.Option("--victim", metavar="last|worst", help="Who is preempted.")]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="Policy; repeatable. The default five if left out.")
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Runs of each policy.")]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**32 - 1, help="Of everything that is drawn at random."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; default: all cores.")]
Executor = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="Processes here, or a running Ray cluster.")
]
Dummy = Annotated[
    bool, typer.Option("--dummy", help="Random weights of the model's shape; nothing is downloaded.")
]
ReportFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder for the report; under reports/ if left out.")
]


def chosen_policy(
    name: str,
    starvation_threshold_s: str | None,
    victim: str | None,
    predictors: Collection[str] = (),
    starvation_s_per_token: float | None = None,
    ageing_tokens_per_s: float | None = None,
) -> Policy:
    """A policy by name with guard and victim changed. `predictors`: those whose scores the trace has.

    Raises:
        UserError: no such policy, or a guard or victim that is none.
    """
    from parsim.scheduler.policy import parse_policy

    policy = parse_policy(name, predictors)
    if starvation_threshold_s is not None:
        policy = replace(policy, starvation_threshold_s=_threshold(starvation_threshold_s))
    policy = replace(
        policy, starvation_s_per_token=starvation_s_per_token, ageing_tokens_per_s=ageing_tokens_per_s
    )
    policy.aged_order  # noqa: B018 (refuses what does not go together)
    if victim is not None:
        if victim not in ("last", "worst"):
            raise UserError(f"--victim {victim!r}: expected last or worst")
        policy = replace(policy, victim=victim)  # type: ignore[arg-type]
    return policy


def pairs(option: str, items: list[str]) -> dict[str, str]:
    """`KEY=VALUE` items of an option.

    Raises:
        UserError: an item without `=`, or a key given twice.
    """
    found: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {item!r}: expected KEY=VALUE")
        if key in found:
            raise UserError(f"{option} {key}: given twice")
        found[key.strip()] = value.strip()
    return found


def emulated_taus(items: list[str], policies: Sequence[str]) -> dict[str, float]:
    """Kendall's tau-b by policy, from `POLICY=TAU` items; `policies` are those of the run.

    Raises:
        UserError: an unknown policy, one that is not run, or a tau out of range.
    """
    from parsim.scheduler.policy import parse_policy

    taus = {name: _tau(name, value) for name, value in pairs("--emulate", items).items()}
    idle = [name for name in taus if name not in policies]
    if idle:
        parse_policy(idle[0])
        raise UserError(
            f"--emulate {idle[0]}: this run is under {', '.join(policies)}; write --policy {idle[0]}"
        )
    return taus


def slo_limits(items: list[str]) -> dict[str, float]:
    """Limits in ms by latency name, from `NAME:MS` items (several may stand in one, apart by blanks).

    Raises:
        UserError: an unknown latency or a limit that is no number above 0.
    """
    from parsim.metrics import SLO_NAMES

    limits: dict[str, float] = {}
    for item in " ".join(items).split():
        name, colon, text = item.partition(":")
        if name not in SLO_NAMES or not colon:
            raise UserError(f"--slo {item!r}: expected NAME:MS with NAME one of {', '.join(SLO_NAMES)}")
        limits[name] = _number(f"--slo {name}", text)
        if not limits[name] > 0:
            raise UserError(f"--slo {name}: the limit must be above 0 ms (got {text!r})")
    return limits


def _tau(policy: str, text: str) -> float:
    tau = _number(f"--emulate {policy}", text)
    if not -1.0 <= tau <= 1.0:
        raise UserError(f"--emulate {policy}: tau must lie between -1 and 1 (got {text})")
    return tau


def _threshold(text: str) -> float | None:
    if text.lower() == "none":
        return None
    value = _number("--starvation-threshold-s", text)
    if value < 0:
        raise UserError("--starvation-threshold-s: must be 0 or more seconds, or none")
    return value


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value:
        raise UserError(f"{option}: expected a number, got {text!r}")
    return value
