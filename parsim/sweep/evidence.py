"""What the verdict needs beyond the grid: the best clairvoyant order, more seeds where it is undecided, and loads
between which ordering begins to matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from parsim.scheduler.policy import POLICIES
from parsim.sweep.judge import (
    BEST_ORDER,
    BY_RESPONSE,
    NOTICEABLE,
    TAIL_COST,
    Judgement,
    beyond_noise,
    gain,
    judge,
)
from parsim.sweep.measure import Outcome
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point
from parsim.sweep.results import Results

Runs = list[tuple[str, Point, Outcome]]
MOST_REQUESTS = 200_000
"""Requests that one policy may serve in all seeds of the verdict: long traces vary less, and take longer."""
ONSET_SEEDS = 12
"""Seeds that the search for the load from which order matters uses at one load, at most."""
ONSET_LOADS = (0.7, 0.9, 1.0, 1.15, 1.4)
"""Shares of the capacity at which it is asked whether ordering matters, where the grid has no loads around it."""


def looks(first: int, most: int) -> list[int]:
    """How many seeds each look at the verdict has: twice as many each time, up to `most`.

    >>> looks(3, 24)
    [3, 6, 12, 24]
    """
    counts = [first]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts


def budget(most_seeds: int, requests: int, grid_seeds: int) -> int:
    """Seeds that the verdict may use on traces of this many requests; at least the grid's."""
    return max(grid_seeds, min(most_seeds, MOST_REQUESTS // requests))


CLAIRVOYANT = {
    name: replace(POLICIES[of], name=name, starvation_threshold_s=None)
    for name, of in ((BEST_ORDER, "oracle-weighted"), (BY_RESPONSE, "oracle"))
}
"""Orders that know every length, without a guard."""


def at(grid: Grid, names: Iterable[str], loads: Iterable[float], seeds: Sequence[int]) -> list[Point]:
    """Points of the grid's first settings, for policies of the grid and the unguarded clairvoyant orders."""
    changed, engine = grid.engines[0]
    policies = [CLAIRVOYANT.get(name) or grid.base[name] for name in names]
    return [
        Point(policy, engine, load, seed, changed) for policy in policies for load in loads for seed in seeds
    ]


def fresh_seeds(known: Sequence[int], count: int) -> list[int]:
    """`count` seeds above those that are known."""
    return [max(known) + 1 + i for i in range(count)]


def more_seeds(
    run: Callable[[Sequence[Point], str, str], Runs],
    table: Callable[[Runs], Results],
    runs: Runs,
    grid: Grid,
    focus: float,
    seeds: Sequence[int],
    counts: Sequence[int],
) -> Runs:
    """Runs of more seeds at the load of the verdict, until it is decided or the last look is taken."""
    added: Runs = []
    known = list(seeds)
    for count in counts[1:]:
        j = judge(table(runs + added))
        told = j.best is None or beyond_noise(j.best) or j.best.high < NOTICEABLE
        tail = j.answer != "helps" or all(t.low > 1 or not t.value > TAIL_COST for t in j.tails.values())
        if j.answer != "undecided" and told and tail:
            break
        fresh = fresh_seeds(known, count - len(known))
        known += fresh
        names = dict.fromkeys(["fcfs", *([] if j.policy == "fcfs" else [j.policy]), *j.orders])
        added += run(at(grid, names, [focus], fresh), "seeds", f"{count} seeds at the load of the verdict")
    return added


def ranked(
    run: Callable[[Sequence[Point], str, str], Runs],
    table: Callable[[Runs], Results],
    grid: Grid,
    facts: dict[str, Any],
) -> Runs:
    """What the verdict itself rests on beyond the grid: the unguarded clairvoyant orders, by prompt and response at
    every load and by response at that of the verdict, and more seeds there until it is decided."""
    focus, seeds, title = facts["focus_load"], facts["seeds"], "orders that know every length"
    runs = run(at(grid, [BEST_ORDER], facts["loads"], seeds), "clairvoyant", title)
    runs += run(at(grid, [BY_RESPONSE], [focus], seeds), "clairvoyant", title)
    return runs + more_seeds(run, table, runs, grid, focus, seeds, facts["looks"])


def onset_loads(j: Judgement, loads: Sequence[float], capacity_load: float) -> list[float]:
    """Loads to add so that there are some below and above the one from which order matters, where the grid has none."""
    inside = [load for load in loads if 0.5 * capacity_load < load < 1.7 * capacity_load]
    if math.isnan(capacity_load) or len(inside) >= 4:
        return []
    wanted = (float(f"{share * capacity_load:.3g}") for share in ONSET_LOADS)
    return sorted({load for load in wanted if load > 0} - set(loads))


def onset(
    run: Callable[[Sequence[Point], str, str], Runs],
    table: Callable[[Runs], Results],
    runs: Runs,
    grid: Grid,
    policy: str,
    seeds: Sequence[int],
) -> Runs:
    """Seeds at the loads where an order seems to gain and it is not shown, from the lowest on, until it is shown."""
    added: Runs = []
    for name in dict.fromkeys([BEST_ORDER, *([] if policy == "fcfs" else [policy])]):
        known = list(seeds)
        for load in table(runs).loads:
            count = len(seeds)
            while True:
                found = gain(table(runs + added), name, load)
                if beyond_noise(found) or not found.value > NOTICEABLE or count >= ONSET_SEEDS:
                    break
                known = [*seeds, *fresh_seeds(seeds, count - len(seeds))]
                fresh = fresh_seeds(known, count)
                count *= 2
                added += run(at(grid, ["fcfs", name], [load], fresh), "onset", "where order begins to matter")
            if beyond_noise(found):
                break
    return added
