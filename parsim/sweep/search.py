"""Settings beyond the grid: Optuna's TPE over policy, guard, victim, the batch limits and what the sweep varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parsim.engine import EngineConfig
from parsim.metrics import METRICS
from parsim.scheduler.policy import Policy
from parsim.sweep.choose import Constraint
from parsim.sweep.configuration import engine_columns
from parsim.sweep.execute import Runner
from parsim.sweep.measure import Outcome
from parsim.sweep.plan import GUARDS_S, Grid
from parsim.sweep.point import Point

if TYPE_CHECKING:
    from optuna import Trial

LIMITS = ("max_num_seqs", "max_num_batched_tokens")
"""Engine fields that every search tries."""

BATCH = 6
"""Trials asked for at once: they run side by side, and the search is the same for any number of processes."""

FACTORS = {"max_num_seqs": (0.25, 0.5, 1, 2, 4), "max_num_batched_tokens": (0.25, 0.5, 1, 2, 4, 8)}
"""Limits that are tried, as multiples of the engine's own: what people would type."""


def search(
    runner: Runner,
    grid: Grid,
    load: float,
    seeds: Sequence[int],
    objective: str,
    constraints: Sequence[Constraint],
    trials: int,
) -> list[tuple[Point, Outcome]]:
    """Run `trials` settings at `load` and return their points with outcomes.

    Starts from the sweep's own settings under every policy that an engine can run, then follows the Tree-structured
    Parzen Estimator (Bergstra et al. 2011) with constraints, seeded: the same sweep searches the same settings.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    policies = {name: policy for name, policy in grid.base.items() if policy.runs_in_vllm}
    if not policies or trials <= 0:
        return []
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=2 * BATCH)
    direction = "minimize" if METRICS[objective].better == "lower" else "maximize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    for start in starts(policies, grid):
        study.enqueue_trial(start)
    runs: list[tuple[Point, Outcome]] = []
    for batch in range(0, trials, BATCH):
        asked = [study.ask() for _ in range(min(BATCH, trials - batch))]
        points = [[_point(trial, policies, grid, load, seed) for seed in seeds] for trial in asked]
        flat = [point for group in points for point in group]
        outcomes = runner.run(flat, f"search {batch + len(asked)}/{trials}")
        runs += zip(flat, outcomes, strict=True)
        for i, trial in enumerate(asked):
            own = outcomes[i * len(seeds) : (i + 1) * len(seeds)]
            means = {
                m: float(np.mean([o.metrics[m] for o in own]))
                for m in (objective, *(c.metric for c in constraints))
            }
            for constraint in constraints:
                trial.set_constraint(str(constraint), _excess(constraint, means[constraint.metric]))
            if np.isfinite(means[objective]):
                study.tell(trial, means[objective])
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return runs


def _excess(constraint: Constraint, value: float) -> float:
    over = value - constraint.bound if constraint.sense == "<=" else constraint.bound - value
    return over if np.isfinite(over) else 1e12


def starts(policies: dict[str, Policy], grid: Grid) -> list[dict[str, object]]:
    """The first trials: the best-ranked policy and FCFS with four times the sequences (the cure that needs no
    ranking where slots are short), then every policy with the sweep's own settings."""
    more = {"max_num_seqs": grid.engine.max_num_seqs * 4}
    tokens = values(grid)["max_num_batched_tokens"]
    least = max(grid.engine.max_num_batched_tokens, more["max_num_seqs"])
    more["max_num_batched_tokens"] = next((value for value in tokens if value >= least), tokens[-1])
    own = [
        {**_start(policy, grid), **({"engine": i} if len(bases(grid)) > 1 else {})}
        for i in range(len(bases(grid)))
        for policy in policies.values()
    ]
    wide = [name for name in ("fcfs", grid.candidate.name if grid.candidate else "") if name in policies]
    return [{**_start(policies[name], grid), **more} for name in wide] + own


def bases(grid: Grid) -> list[EngineConfig]:
    """The grid's engines that differ in more than the limits that the search sets itself."""
    found: dict[str, EngineConfig] = {}
    for _, engine in grid.engines:
        found.setdefault(engine.model_copy(update=dict.fromkeys(LIMITS, 1)).model_dump_json(), engine)
    return list(found.values())


def values(grid: Grid) -> dict[str, list[int]]:
    """Limit -> the values that are tried: the engine's own, doubled or halved, and those of the grid."""
    found = {}
    for name in LIMITS:
        own = getattr(grid.engine, name)
        multiples = {own * factor for factor in FACTORS[name]}
        swept = {getattr(engine, name) for _, engine in grid.engines}
        found[name] = sorted({int(value) for value in multiples if value == int(value) > 0} | swept)
    return found


def guards(grid: Grid) -> list[float | None]:
    """Starvation thresholds that are tried: those of the study of guards, and the policies' own."""
    return list(dict.fromkeys([*GUARDS_S, *(policy.starvation_threshold_s for policy in grid.policies)]))


def _start(policy: Policy, grid: Grid) -> dict[str, object]:
    return {
        "policy": policy.name,
        "starvation_threshold_s": policy.starvation_threshold_s,
        "victim": policy.victim,
        "max_num_seqs": grid.engine.max_num_seqs,
        "max_num_batched_tokens": grid.engine.max_num_batched_tokens,
    }


def _point(trial: Trial, policies: dict[str, Policy], grid: Grid, load: float, seed: int) -> Point:
    own, engines = grid.engine, bases(grid)
    base = (
        engines[trial.suggest_categorical("engine", list(range(len(engines))))] if len(engines) > 1 else own
    )
    policy = policies[trial.suggest_categorical("policy", list(policies))]
    guard = trial.suggest_categorical("starvation_threshold_s", guards(grid))
    victim = trial.suggest_categorical("victim", ["last", "worst"])
    limits = {name: trial.suggest_categorical(name, tried) for name, tried in values(grid).items()}
    limits["max_num_batched_tokens"] = max(limits["max_num_batched_tokens"], limits["max_num_seqs"])
    if not base.enable_chunked_prefill:
        limits["max_num_batched_tokens"] = max(limits["max_num_batched_tokens"], base.max_model_len)
    if policy.ranked:
        policy = replace(policy, starvation_threshold_s=guard)
    engine = base.model_copy(update=limits)
    mine, theirs = engine_columns(own), engine_columns(engine)
    changed = {name: value for name, value in theirs.items() if value != mine[name]}
    return Point(replace(policy, victim=victim), engine, load, seed, changed)
