"""A sweep from file to tables: traces, capacity, grid, studies, search, choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.engine.scoring_cost import read_cost
from parsim.files import replacing
from parsim.progress import progress_bar
from parsim.sweep import cures, duration, evidence, nominate, plan, trial
from parsim.sweep.capacity import Capacity, stationary
from parsim.sweep.choice import chosen, serve_command, write_choice
from parsim.sweep.choose import Decision, check_metric, decide, parse_constraint
from parsim.sweep.evidence import Runs
from parsim.sweep.execute import ExecutorName, Runner
from parsim.sweep.facts import bounds, describe
from parsim.sweep.judge import BEST_ORDER, QUEUE_SHARE, judge, queue_share
from parsim.sweep.limit import Limit, binding
from parsim.sweep.measure import Outcome
from parsim.sweep.point import Point
from parsim.sweep.results import Results, collect
from parsim.sweep.search import search
from parsim.sweep.spec import SweepSpec, dump_spec
from parsim.sweep.store import Store
from parsim.sweep.trial import Trial
from parsim.sweep.workload import Workload, load_trace
from parsim.traces.reading import said

if TYPE_CHECKING:
    from rich.console import Console

MAP_LOADS = 5
STUDY_SEEDS = 2
CURE_SEEDS = 6
DURATION_SEEDS = 3
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
    for line in said(first.metadata) if spec.trace.path is not None else ():
        console.print(line, highlight=False, markup=False)
    grid = plan.resolve(spec, first)
    workload = Workload(spec.trace, folder / "traces", tuple(sorted(spec.seeds)), first, grid.engine)
    with replacing(folder / "sweep.yaml") as path:
        path.write_text(dump_spec(spec), encoding="utf-8")
    seeds = workload.seeds
    with progress_bar(console) as bar:
        runner = Runner(workload, store, spec.limits, scoring, executor, jobs, bar)

        def run(points: Sequence[Point], study: str, title: str) -> Runs:
            return [(study, *made) for made in zip(points, runner.run(points, title), strict=True)]

        capacity = stationary(runner, workload, grid.engine)
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
        facts["bound"] = [
            *bounds(workload, grid, loads, seeds[0]),
            *(entry for seed in seeds[1:] for entry in bounds(workload, grid, [focus], seed)),
        ]
        runs += judged(run, runs, grid, workload, capacity, facts)
        outcomes = runner.run(points, "studies")
        runs += [(study, point, outcome) for (study, point), outcome in zip(rest, outcomes, strict=True)]
        if "search" in spec.studies:
            found = search(runner, grid, focus, seeds[:STUDY_SEEDS], spec.objective, constraints, spec.trials)
            runs += [("search", point, outcome) for point, outcome in found]
        tried, decided = tested(run, runs, spec, grid, workload, facts)
        runs += tried
    results, decision = tables(spec, grid, workload, runs, facts, decided)
    results.write(folder)
    write_choice(folder, decision, grid, workload, results.results, focus, seeds, facts)
    return results


def tables(
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    runs: Sequence[tuple[str, Point, Outcome]],
    facts: dict[str, Any],
    decided: Trial | None = None,
) -> tuple[Results, Decision]:
    """The tables of the runs so far and what is recommended, which is told in `facts`: what came through the trial;
    before there was one vLLM's defaults, which the page does not call recommended."""
    results = collect(runs, workload.rate_rps, facts)
    constraints = [parse_constraint(text) for text in spec.subject_to]
    decision = decide(results.results, spec.objective, constraints, facts["focus_load"])
    if decided is not None:
        best = decided.tried[decided.chosen]
        decision = replace(decision, row=best.row, feasible=not best.unmet, violated=best.unmet)
        facts["trial"] = decided.facts()
    else:
        row = nominate.defaults(results, facts["focus_load"])
        decision = replace(decision, row=row, feasible=True, violated=())
    policy, engine = chosen(decision, grid)
    facts["command"] = serve_command(policy, engine, spec.set)
    facts["decision"] = {
        "row": decision.row,
        "feasible": decision.feasible,
        "violated": list(decision.violated),
    }
    return results, decision


def tested(
    run: Callable[[Sequence[Point], str, str], Runs],
    runs: Runs,
    spec: SweepSpec,
    grid: plan.Grid,
    workload: Workload,
    facts: dict[str, Any],
) -> tuple[Runs, Trial]:
    """The trial of what the grid's seeds nominate, and its runs. Its seeds are those that the verdict went on with: no
    candidate was chosen by them, and what the verdict has run there is not run again."""
    constraints = [parse_constraint(text) for text in spec.subject_to]
    load, seeds = facts["focus_load"], workload.seeds
    added: Runs = []

    def table(more: Runs) -> Results:
        return collect(more, workload.rate_rps, facts)

    def mean(row: nominate.Row) -> tuple[float, float]:
        made = run(trial.points(grid, [row], [load], seeds[:STUDY_SEEDS]), "plainer", "plainer settings")
        added.extend(made)
        found = [outcome.metrics for _, _, outcome in made]
        return tuple(sum(m[name] for m in found) / len(found) for name in (spec.objective, nominate.TAIL))  # type: ignore[return-value]

    rows = nominate.nominees(table(runs), spec.objective, constraints, spec.tail_bound, load)
    rows = nominate.plainer(rows, mean, spec.objective)
    asked = trial.Asked(
        objective=spec.objective,
        constraints=constraints,
        tail_bound=spec.tail_bound,
        load=load,
        burst=workload.first.span_s == 0,
        known=seeds,
        most_seeds=evidence.budget(spec.most_seeds, len(workload.first), trial.FIRST_LOOK),
    )
    tried, decided = trial.hold(run, table, grid, rows, asked)
    return added + tried, decided


def judged(
    run: Callable[[Sequence[Point], str, str], Runs],
    runs: Runs,
    grid: plan.Grid,
    workload: Workload,
    capacity: Capacity,
    facts: dict[str, Any],
) -> Runs:
    """What the verdict needs beyond the grid: the best clairvoyant order at every load, seeds added where it is
    undecided, and loads added where the grid has none around the one from which ordering matters."""
    focus, loads, seeds = facts["focus_load"], facts["loads"], facts["seeds"]
    base = [entry for entry in runs if entry[0] == "main"]

    def table(more: Runs) -> Results:
        return collect(base + more, workload.rate_rps, facts)

    added = evidence.ranked(run, table, grid, facts)
    more_seeds = sorted({point.seed for _, point, _ in added} - set(seeds))
    facts["bound"] += [entry for seed in more_seeds for entry in bounds(workload, grid, [focus], seed)]
    j = judge(table(added))
    if capacity.known and workload.first.span_s > 0 and j.alike != "requests":
        more = evidence.onset_loads(j, loads, capacity.rps / workload.rate_rps)
        names = dict.fromkeys(["fcfs", j.policy, BEST_ORDER])
        added += run(evidence.at(grid, names, more, seeds), "onset", "where order begins to matter")
        added += evidence.onset(run, table, added, grid, j.policy, seeds)
    j = judge(table(added))
    if queue_share(table(added), focus) >= QUEUE_SHARE and j.alike != "requests":
        ran = sorted({p.seed for _, p, _ in base + added if p.load == focus and p.policy.name == "fcfs"})
        added += run(
            cures.points(grid, focus, len(workload.first), ran[:CURE_SEEDS]), "cures", "what else would help"
        )
    lasting = capacity.known and workload.first.span_s > 0 and focus * workload.rate_rps > capacity.low
    if lasting and j.policy != "fcfs" and j.gain.low != j.gain.high:
        made = duration.points(grid, j.policy, focus, len(workload.first), seeds[:DURATION_SEEDS])
        added += run(made, "duration", "overload by its duration")
    return added


def choose_loads(spec: SweepSpec, capacity: Capacity, workload: Workload) -> tuple[tuple[float, ...], float]:
    """The loads of the sweep, and the one that the verdict is about.

    The verdict is about `focus_load`; else about load 1, the trace's own rate, or the load nearest to it. The
    bundled trace is no one's traffic: its verdict is about the load a little above what the engine sustains.
    """
    burst = workload.first.span_s == 0  # all at once: no load changes anything
    automatic = (1.0,) if burst else plan.automatic_loads(capacity.rps, workload.rate_rps)
    loads = set(automatic if spec.loads == "auto" else spec.loads)
    focus = spec.focus_load
    if focus is None:
        wanted = BUSY * capacity.rps / workload.rate_rps if spec.trace.bundled else 1.0
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
