"""A sweep from file to tables: traces, capacity, grid, studies, search, choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from parsim.engine.scoring_cost import ScoringCost, read_cost
from parsim.errors import UserError
from parsim.files import replacing
from parsim.progress import progress_bar
from parsim.sweep import plan
from parsim.sweep.bound import lower_bound_ms
from parsim.sweep.choice import chosen, serve_command, write_choice
from parsim.sweep.choose import Decision, check_metric, decide, parse_constraint
from parsim.sweep.execute import ExecutorName, Runner
from parsim.sweep.limit import Limit, binding
from parsim.sweep.measure import Outcome
from parsim.sweep.point import Point
from parsim.sweep.results import Results, collect
from parsim.sweep.search import search
from parsim.sweep.spec import ASSUMED_TAU_SOURCE, SweepSpec, dump_spec
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload, load_trace
from parsim.traces import bundled_trace

if TYPE_CHECKING:
    from rich.console import Console

MAP_LOADS = 5
STUDY_SEEDS = 2
BUSY = 1.15
"""The bundled trace's verdict is about this share of the capacity: a busy hour."""


def run_sweep(
    spec: SweepSpec,
    folder: Path,
    console: Console,
    executor: ExecutorName = "local",
    jobs: int | None = None,
    fresh: bool = False,
    publish: Callable[[Results], None] | None = None,
) -> Results:
    """Run every point of `spec` that `folder` does not hold yet, and write the tables and `choice.json`.

    `publish` is called with the results of the grid as soon as these are there and studies remain to be run:
    `facts["pending"]` names them.

    Raises:
        UserError: the sweep file asks for something that does not exist; nothing is run then.
    """
    check_metric(spec.objective, "objective")
    constraints = [parse_constraint(text) for text in spec.subject_to]
    scoring = read_cost(spec.scoring_cost)
    store = Store(folder / "points")
    if fresh:
        store.clear()
    first = load_trace(spec.trace, min(spec.seeds))
    grid = plan.resolve(spec, first)
    workload = Workload(spec.trace, folder / "traces", tuple(sorted(spec.seeds)), first)
    with replacing(folder / "sweep.yaml") as path:
        path.write_text(dump_spec(spec), encoding="utf-8")
    seeds = workload.seeds
    with progress_bar(console) as bar:
        runner = Runner(workload, store, spec.limits, scoring, executor, jobs, bar)
        capacity = sustained_rps(runner.run([plan.capacity_point(grid, seeds[0])], "capacity")[0])
        loads, focus = choose_loads(spec, capacity, workload)
        limit = binding(runner, grid, loads[-1], seeds[0])
        studies = planned(spec, grid, workload, loads, focus, seeds, limit)
        main = studies.pop("main")
        runs = [("main", *run) for run in zip(main, runner.run(main, "grid"), strict=True)]
        rest = [(study, point) for study, points in studies.items() for point in points]
        points = [point for _, point in rest]
        facts = describe(spec, grid, workload, loads, focus, capacity, scoring) | {"limit": limit}
        if publish is not None and (runner.missing(points) or not (folder / "results.parquet").exists()):
            pending = {**facts, "pending": [str(s) for s in spec.studies], "bound": []}
            publish(tables(spec, grid, workload, runs, pending)[0])
        outcomes = runner.run(points, "studies")
        runs += [(study, point, outcome) for (study, point), outcome in zip(rest, outcomes, strict=True)]
        if "search" in spec.studies:
            found = search(runner, grid, focus, seeds, spec.objective, constraints, spec.trials)
            runs += [("search", point, outcome) for point, outcome in found]
    facts["bound"] = bounds(workload, grid, loads)
    results, decision = tables(spec, grid, workload, runs, facts)
    results.write(folder)
    write_choice(folder, decision, grid, workload, results.results, focus, seeds, facts)
    return results


def tables(
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    runs: Sequence[tuple[str, Point, Outcome]],
    facts: dict[str, Any],
) -> tuple[Results, Decision]:
    """The tables of the runs so far and the best of their settings, which is told in `facts`."""
    results = collect(runs, workload.rate_rps, facts)
    constraints = [parse_constraint(text) for text in spec.subject_to]
    decision = decide(results.results, spec.objective, constraints, facts["focus_load"])
    policy, engine = chosen(decision, grid)
    facts["command"] = serve_command(policy, engine, spec.set)
    facts["decision"] = {
        "row": decision.row,
        "feasible": decision.feasible,
        "violated": list(decision.violated),
    }
    return results, decision


def sustained_rps(saturated: Outcome) -> float:
    """Requests per second while the engine is full: completions between the 20th and 80th percentile of the ends.

    Raises:
        UserError: the engine can run no request of the trace.
    """
    if saturated.requests is None:
        return float("nan")
    ends = saturated.requests["finish_s"].drop_nulls().sort()
    if ends.is_empty():
        reason = str(saturated.requests["rejected"].drop_nulls().first())
        raise UserError(
            f"the engine rejects every request of the trace (the first: {reason}); give it more room"
        )
    low, high = (float(ends.quantile(q) or 0.0) for q in (0.2, 0.8))
    return 0.6 * len(ends) / (high - low) if high > low else len(ends) / max(float(ends[-1]), 1e-9)


def choose_loads(spec: SweepSpec, capacity_rps: float, workload: Workload) -> tuple[tuple[float, ...], float]:
    """The loads of the sweep, and the one that the verdict is about.

    The verdict is about `focus_load`; else about load 1, the trace's own rate, or the load nearest to it. The
    bundled trace is no one's traffic: its verdict is about the load a little above what the engine sustains.
    """
    burst = workload.first.span_s == 0  # all at once: no load changes anything
    automatic = (1.0,) if burst else plan.automatic_loads(capacity_rps, workload.rate_rps)
    loads = set(automatic if spec.loads == "auto" else spec.loads)
    focus = spec.focus_load
    if focus is None:
        wanted = BUSY * capacity_rps / workload.rate_rps if spec.trace.bundled else 1.0
        focus = min(loads, key=lambda load: (abs(load - wanted), load))
    return tuple(sorted(loads | {focus})), focus


def planned(
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    loads: Sequence[float],
    focus: float,
    seeds: Sequence[int],
    limit: Limit,
) -> dict[str, list[Point]]:
    """Study -> its points, the grid first."""
    few = seeds[:STUDY_SEEDS]
    frame = workload.first.frame
    longest = int((frame["prompt_tokens"] + frame["output_tokens"]).max() or 1)  # type: ignore[arg-type]
    longest = min(longest, grid.engine.max_model_len)
    every = -(-len(loads) // MAP_LOADS)
    makers = {
        "map": lambda: plan.map_points(grid, sorted({*loads[::every], focus}), seeds[:1], longest, limit),
        "tau": lambda: plan.tau_points(grid, focus, few),
        "guard": lambda: plan.guard_points(grid, focus, few),
        "victim": lambda: plan.victim_points(grid, focus, few, longest),
        "timeline": lambda: plan.timeline_points(grid, focus, seeds[0]),
    }
    studies = {"main": plan.main_points(grid, loads, seeds)}
    studies |= {name: make() for name, make in makers.items() if name in spec.studies}
    return studies


def bounds(workload: Workload, grid: plan.Grid, loads: Sequence[float]) -> list[dict[str, float]]:
    """The lower bound on the mean per-token latency at every load, for the first seed."""
    engine, frame = grid.engine, workload.first.frame
    total = pl.col("prompt_tokens") + pl.col("output_tokens")
    fits = frame.filter(total <= engine.max_model_len, total <= engine.usable_blocks * engine.block_size)
    arrival, prompt, output = (fits[c].to_numpy() for c in ("arrival_s", "prompt_tokens", "output_tokens"))
    shared = engine.enable_prefix_caching and workload.first.has_prefix_hashes
    return [
        {
            "load": load,
            "mean_per_token_latency_ms": lower_bound_ms(
                arrival / load, prompt, output, 1 / output, engine, shared
            ),
        }
        for load in loads
    ]


def score_taus(frame: pl.DataFrame) -> dict[str, float]:
    """Kendall tau-b with the response lengths of every real score of the trace; of the bundled one over all its
    prompts, of which a seed draws some twice."""
    from parsim.emulation import sampled_tau_b

    lengths = frame["output_tokens"].to_numpy()
    names = [column for column in frame.columns if column.startswith("score.")]
    return {name.removeprefix("score."): sampled_tau_b(frame[name].to_numpy(), lengths) for name in names}


def describe(
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    loads: Sequence[float],
    focus: float,
    capacity: float,
    scoring: ScoringCost | None,
) -> dict[str, Any]:
    """What the page says of trace, engine and choices; everything in it is the same for the same sweep."""
    frame = workload.first.frame
    return {
        "name": spec.name,
        "trace": {
            "name": workload.first.name,
            "requests": frame.height,
            "rate_rps": workload.rate_rps,
            "span_s": workload.first.span_s,
            "mean_prompt_tokens": frame["prompt_tokens"].mean(),
            "mean_output_tokens": frame["output_tokens"].mean(),
            "p99_output_tokens": frame["output_tokens"].quantile(0.99),
            "redrawn": workload.redrawn,
            "metadata": workload.first.metadata,
        },
        "engine": grid.engine.model_dump(mode="json"),
        "policies": {
            name: {
                "label": p.label,
                "summary": p.summary,
                "starvation_threshold_s": p.starvation_threshold_s,
                "victim": p.victim,
                "emulated_tau": p.emulated_tau,
                "score": p.score,
                "clairvoyant": p.clairvoyant,
                "ranked": p.ranked,
            }
            for name, p in grid.base.items()
        },
        "candidate": grid.candidate.name if grid.candidate else None,
        "emulated": grid.emulated,
        "tau_source": ASSUMED_TAU_SOURCE
        if set(grid.emulated) - set(spec.emulate)
        else "given in the sweep file",
        "score_taus": score_taus(bundled_trace().frame if spec.trace.bundled else frame),
        "capacity_rps": capacity,
        "loads": list(loads),
        "focus_load": focus,
        "seeds": list(workload.seeds),
        "slo": spec.limits,
        "objective": spec.objective,
        "subject_to": list(spec.subject_to),
        "scoring_cost": scoring.provenance if scoring else None,
        "scoring_shares_core": scoring is not None and scoring.shares_core,
    }
