"""Which points a sweep runs: the grid of the sweep file, and the studies that explain it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.engine import EngineConfig, load_engine
from parsim.errors import UserError, nearest
from parsim.scheduler.policy import Policy, parse_policy
from parsim.scheduler.victim import VictimRule
from parsim.simulation import score_problem
from parsim.sweep.point import Dial, Point
from parsim.sweep.spec import ASSUMED_TAUS, SweepSpec
from parsim.traces import Trace

RELATIVE_LOADS = (0.5, 0.75, 0.9, 1.0, 1.15, 1.3, 1.6)
"""The automatic range of loads, as shares of the rate that the engine sustains: idle to overload."""
MAP_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
TAUS = (0.2, 0.4, 0.6)
"""Kendall tau-b that predictors reached on traffic they were not trained on: the range that is shown of a trace
without scores, its middle for the candidate."""
GUARDS_S: tuple[float | None, ...] = (5.0, 15.0, 30.0, 60.0, DEFAULT_STARVATION_THRESHOLD_S, 300.0, None)
DIALS = tuple(
    [Dial("everywhere", tau) for tau in (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    + [Dial(where, tau) for where in ("short", "long", "across") for tau in (0.0, 0.25, 0.5, 0.75)]
)


@dataclass(frozen=True)
class Grid:
    """The sweep file's choices, resolved.

    Attributes:
        engines: (fields that differ, engine), the sweep file's first values first.
        policies: every policy with every guard and victim asked for; the first of a name is that name's own.
        emulated: policy name -> tau, for those whose score the trace lacks.
        tau_range: where a tau had to be assumed, the policies that show the ends of `TAUS`.
        left_out: policies that would be the same emulation as the one that is shown.
    """

    engines: tuple[tuple[dict[str, Any], EngineConfig], ...]
    policies: tuple[Policy, ...]
    emulated: dict[str, float]
    tau_range: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def engine(self) -> EngineConfig:
        return self.engines[0][1]

    @property
    def base(self) -> dict[str, Policy]:
        """Policy name -> the policy with the first guard and victim."""
        first: dict[str, Policy] = {}
        for policy in self.policies:
            first.setdefault(policy.name, policy)
        return first

    @property
    def candidate(self) -> Policy | None:
        """The policy that the studies look at: PARS, else the first ranked one that is not clairvoyant."""
        ranked = [policy for policy in self.base.values() if policy.ranked and not policy.clairvoyant]
        return next((policy for policy in ranked if policy.name == "pars"), ranked[0] if ranked else None)


def resolve(spec: SweepSpec, trace: Trace) -> Grid:
    """The engines and policies of a sweep on `trace`.

    Raises:
        UserError: an unknown policy or engine field (with the nearest name), a bad value, a tau out of range, no fcfs.
    """
    swept = {name: value for name, value in spec.set.items() if isinstance(value, list)}
    fixed = {name: value for name, value in spec.set.items() if name not in swept}
    combinations = itertools.product(*([(name, value) for value in values] for name, values in swept.items()))
    engines = tuple((dict(c), load_engine(spec.engine, {**fixed, **dict(c)})) for c in combinations)
    policies: list[Policy] = []
    emulated: dict[str, float] = {}
    assumed = [name for name in spec.policies if _is_assumed(name, spec, trace)]
    shown = "pars" if "pars" in assumed else next(iter(assumed), None)
    tau_range = tuple(f"emulated(tau={tau:g})" for tau in (TAUS[0], TAUS[-1])) if assumed else ()
    names = [name for name in spec.policies if name not in assumed or name == shown]
    for name in [*names, *(name for name in tau_range if name not in names)]:
        policy, tau = _scored(name, spec, trace)
        if any(policy.name == other.name for other in policies):
            raise UserError(f"policies: {name} stands for {policy.name}, which is there already; delete one")
        if tau is not None:
            emulated[policy.name] = tau
        policies.extend(_variants(policy, spec))
    if "fcfs" not in {p.name for p in policies}:
        raise UserError("policies: fcfs is missing, which every gain is measured against; add it")
    extra = [name for name in spec.emulate if name not in {p.name for p in policies}]
    if extra:
        raise UserError(
            f"emulate.{extra[0]}: not among the policies of this sweep{nearest(extra[0], spec.policies)}"
        )
    left_out = tuple(name for name in assumed if name != shown)
    return Grid(engines, tuple(policies), emulated, tau_range, left_out)


def _is_assumed(name: str, spec: SweepSpec, trace: Trace) -> bool:
    """Whether the trace lacks this policy's scores and the sweep file states no tau in their place."""
    policy = parse_policy(name, trace.score_names)
    return (
        policy.name in ASSUMED_TAUS
        and policy.name not in spec.emulate
        and score_problem(trace, policy) is not None
    )


def _scored(name: str, spec: SweepSpec, trace: Trace) -> tuple[Policy, float | None]:
    policy = parse_policy(name, trace.score_names)
    tau = spec.emulate.get(policy.name)
    missing = score_problem(trace, policy) is not None
    if tau is None and missing:
        tau = TAUS[1] if policy.name in ASSUMED_TAUS else None
        if tau is None:
            raise UserError(
                f"policy {name!r}: the trace has no column {policy.score!r}; add it (parsim score) "
                f"or state a tau under emulate"
            )
    if tau is None:
        return policy, None
    if not -1 <= tau <= 1:
        raise UserError(f"emulate.{name}: tau {tau:g} must lie between -1 and 1")
    try:
        return policy.emulated(tau), tau
    except ValueError as error:
        raise UserError(f"emulate.{name}: {error}") from error


def _variants(policy: Policy, spec: SweepSpec) -> Iterator[Policy]:
    guards: Sequence[float | None] = (policy.starvation_threshold_s,)
    if policy.ranked and spec.starvation_threshold_s is not None:
        guards = spec.starvation_threshold_s
    for guard, victim in itertools.product(guards, spec.victim or (policy.victim,)):
        yield replace(policy, starvation_threshold_s=guard, victim=victim)


def automatic_loads(capacity_rps: float, rate_rps: float) -> tuple[float, ...]:
    """Loads from idle to overload, rounded to three digits, and the trace's own rate."""
    if not capacity_rps > 0:
        return (0.5, 1.0, 1.5, 2.0)
    loads = {float(f"{share * capacity_rps / rate_rps:.3g}") for share in RELATIVE_LOADS}
    return tuple(sorted({load for load in loads if not 0.93 < load < 1.07} | {1.0}))


def main_points(grid: Grid, loads: Sequence[float], seeds: Sequence[int]) -> list[Point]:
    """The grid: every engine, policy, load and seed."""
    return [
        Point(policy, engine, load, seed, changed)
        for (changed, engine), policy, load, seed in itertools.product(
            grid.engines, grid.policies, loads, seeds
        )
    ]


def map_points(
    grid: Grid, loads: Sequence[float], seeds: Sequence[int], longest: int, limit: str = "num_gpu_blocks"
) -> list[Point]:
    """Load x the engine's binding limit under FCFS, the candidate and the oracle.

    `limit`: the field that is varied; `longest`: tokens of the longest request, which fewer blocks would reject.
    """
    policies = [parse_policy("fcfs"), parse_policy("oracle"), *([grid.candidate] if grid.candidate else [])]
    return [
        Point(policy, grid.engine.model_copy(update=changed), load, seed, changed)
        for changed, policy, load, seed in itertools.product(
            limit_values(grid.engine, limit, longest), policies, loads, seeds
        )
    ]


def limit_values(engine: EngineConfig, limit: str, longest: int) -> list[dict[str, int]]:
    """The engine's own value of a limit and smaller and larger ones, as changed fields; a step's budget grows with
    the slots where it has to, and never falls below them."""
    own = getattr(engine, limit)
    least = {
        "num_gpu_blocks": -(-longest // engine.block_size) + 2,
        "max_num_seqs": 1,
        "max_num_batched_tokens": max(
            engine.max_num_seqs, 1 if engine.enable_chunked_prefill else engine.max_model_len
        ),
    }[limit]
    values = sorted({max(round(own * factor), least) for factor in MAP_FACTORS} | {own})
    changes = [{limit: value} for value in values]
    if limit == "max_num_seqs":
        budget = engine.max_num_batched_tokens
        changes = [{**c, "max_num_batched_tokens": v} if (v := c[limit]) > budget else c for c in changes]
    return changes


def tau_points(grid: Grid, load: float, seeds: Sequence[int]) -> list[Point]:
    """The ranking quality and the kind of its errors, at one load."""
    guard = (
        grid.candidate.starvation_threshold_s
        if grid.candidate
        else parse_policy("pars").starvation_threshold_s
    )
    return [
        Point(
            Policy(f"emulated({dial.where} {dial.tau:g})", "score", "score.dial", guard),
            grid.engine,
            load,
            seed,
            dial=dial,
        )
        for dial, seed in itertools.product(DIALS, seeds)
    ]


def guard_points(grid: Grid, load: float, seeds: Sequence[int]) -> list[Point]:
    """Starvation thresholds, for the candidate and the oracle."""
    policies = [p for p in (grid.candidate, parse_policy("oracle")) if p is not None]
    return [
        Point(replace(policy, starvation_threshold_s=guard), grid.engine, load, seed)
        for policy, guard, seed in itertools.product(policies, GUARDS_S, seeds)
    ]


def victim_points(grid: Grid, load: float, seeds: Sequence[int], longest: int) -> list[Point]:
    """Whom to preempt, at the engine's KV size and at a quarter of it."""
    own = grid.engine.num_gpu_blocks
    blocks = (own, max(own // 4, -(-longest // grid.engine.block_size) + 2))
    policies = [p for p in (parse_policy("fcfs"), grid.candidate, parse_policy("oracle")) if p is not None]
    victims: tuple[VictimRule, ...] = ("last", "worst")
    return [
        Point(
            replace(policy, victim=victim),
            grid.engine.model_copy(update={"num_gpu_blocks": b}),
            load,
            seed,
            {"num_gpu_blocks": b},
        )
        for b, policy, victim, seed in itertools.product(blocks, policies, victims, seeds)
    ]


def timeline_points(grid: Grid, load: float, seed: int) -> list[Point]:
    """Every policy once more with its steps kept."""
    return [Point(policy, grid.engine, load, seed, keep="steps") for policy in grid.base.values()]
