"""Which settings to recommend: candidates put to the test on seeds that none was chosen by.

A candidate may win only if it is shown to be better than vLLM's defaults at the load (the whole interval of its gain
lies above 1), its p99 TTFT lies within the tail bound, and it meets the constraints with their interval; and if at 20%
below and above the load it is at most `WORSE` times the defaults and within the bound too. Seeds are doubled until the
leading candidates are decided or the budget is used; every look has its share of the 5%. Of those that are not shown to
be behind the best, the plainest is chosen: none that needs a predictor where another does as well, then the fewest
changed settings. Where none is shown, vLLM's defaults are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from parsim.metrics import METRICS
from parsim.stats import Interval
from parsim.sweep.choose import EQUAL, Constraint, changed_settings
from parsim.sweep.configuration import configuration_columns, engine_of
from parsim.sweep.evidence import Runs, fresh_seeds, looks
from parsim.sweep.nominate import TAIL, Row
from parsim.sweep.plan import Grid
from parsim.sweep.point import Point
from parsim.sweep.results import Results, paired

MARGINS = (0.8, 1.2)
"""Shares of the load at which the one that is to be recommended is judged besides."""
FIRST_LOOK = 6
"""Seeds of the first look at the load."""
MARGIN_SEEDS = (6, 12)
"""Seeds of the first and of the second look at the loads around it."""
WORSE = 1.05
NOT_SHOWN = "is not shown to be better"


@dataclass(frozen=True)
class Asked:
    """What a trial is about.

    Attributes:
        objective, constraints, tail_bound: the user's.
        load, burst: the load, and whether all requests arrive at once: then there are no loads around it.
        known: the seeds that candidates were chosen by.
        most_seeds: the budget of seeds at the load.
    """

    objective: str
    constraints: Sequence[Constraint]
    tail_bound: float | None
    load: float
    burst: bool
    known: Sequence[int]
    most_seeds: int

    @property
    def counts(self) -> list[int]:
        """Seeds of every look at the load."""
        return looks(FIRST_LOOK, max(self.most_seeds, FIRST_LOOK))

    @property
    def margins(self) -> list[float]:
        """The loads around the load."""
        return [] if self.burst else [float(f"{share * self.load:.6g}") for share in MARGINS]


@dataclass(frozen=True)
class Tried:
    """What the trial found of one candidate.

    Attributes:
        row: its settings and the mean of each metric at the load, over the trial's seeds.
        gains: load -> objective of vLLM's defaults over the candidate's (turned round where higher is better).
        tails: load -> p99 TTFT over that of vLLM's defaults.
        broken: what keeps it from being recommended, in words; empty where nothing does.
        unmet: the constraints that it is not shown to meet, in words.
        excess: by how much its means miss the constraints, as a share of their bounds.
        predictor: whether it needs one.
        changes: settings changed from vLLM's defaults.
        out: whether more seeds are no use: it is shown to be no better, or to break a rule.
    """

    row: Row
    gains: dict[float, Interval]
    tails: dict[float, Interval]
    broken: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    excess: float = 0.0
    predictor: bool = False
    changes: int = 0
    out: bool = False

    @property
    def rank(self) -> tuple[bool, int]:
        """Low where it is plain."""
        return self.predictor, self.changes


@dataclass(frozen=True)
class Trial:
    """The candidates, vLLM's defaults first, the chosen one, and why it."""

    tried: tuple[Tried, ...]
    chosen: int
    reason: str

    def facts(self) -> dict[str, Any]:
        """For `facts.json`."""
        rows = [
            {
                "row": {k: v for k, v in t.row.items() if k not in METRICS},
                "gains": [[load, *t.gains[load]] for load in sorted(t.gains)],
                "tails": [[load, *t.tails[load]] for load in sorted(t.tails)],
                "broken": [*t.broken, *t.unmet],
                "predictor": t.predictor,
                "changes": t.changes,
            }
            for t in self.tried
        ]
        return {"tried": rows, "chosen": self.chosen, "reason": self.reason}


def points(grid: Grid, rows: Sequence[Row], loads: Sequence[float], seeds: Sequence[int]) -> list[Point]:
    """The candidates at every load on every seed."""
    return [
        Point(
            replace(
                grid.base[row["policy"]],
                starvation_threshold_s=row["starvation_threshold_s"],
                victim=row["victim"],
            ),
            engine_of(row, grid.engine),
            load,
            seed,
        )
        for row in rows
        for load in loads
        for seed in seeds
    ]


def hold(
    run: Callable[[Sequence[Point], str, str], Runs],
    table: Callable[[Runs], Results],
    grid: Grid,
    rows: Sequence[Row],
    asked: Asked,
) -> tuple[Runs, Trial]:
    """Put the candidates, vLLM's defaults first, to the test: all at the load, the one to be chosen around it too."""
    runs: Runs = []
    alive, tried = list(range(len(rows))), dict[int, Tried]()
    level, seeds = 1 - 0.05 / len(asked.counts), fresh_seeds(asked.known, asked.counts[-1])
    done = 0
    for count in asked.counts:
        fresh, done = seeds[done:count], count
        made = points(grid, [rows[i] for i in alive], [asked.load], fresh)
        runs += run(made, "trial", "the candidates, on fresh seeds")
        results = table(runs)
        tried |= {i: judge_one(results, rows[i], rows[0], asked.load, asked, level) for i in alive}
        first, _, unsure = choose(tried, _behind(results, tried, asked, level))
        open_ = [i for i in alive if i and tried[i].broken and not tried[i].out]
        leading = [i for i in open_ if tried[i].rank < tried[first].rank or _ahead(tried[i], tried[first])]
        if not leading and not unsure:
            break
        alive = [0] + [i for i in alive if i and not tried[i].out]
    level = 1 - 0.05 / len(MARGIN_SEEDS)
    while True:
        results = table(runs)
        chosen, reason, _ = choose(tried, _behind(results, tried, asked, level))
        if chosen == 0 or not asked.margins or asked.margins[0] in tried[chosen].gains:
            return runs, Trial(tuple(tried[i] for i in sorted(tried)), chosen, reason)
        for start, count in zip((0, *MARGIN_SEEDS), MARGIN_SEEDS, strict=False):
            made = points(grid, [rows[0], rows[chosen]], asked.margins, seeds[start:count])
            runs += run(made, "trial", "the chosen one at the loads around it")
            tried[chosen] = around(table(runs), tried[chosen], rows[0], asked, level)
            if not tried[chosen].broken:
                break


def of(results: Results, row: Row, load: float) -> pl.DataFrame:
    """The trial's rows of a candidate."""
    columns = configuration_columns(results.results)
    same = [pl.col(name).eq_missing(pl.lit(row[name])) for name in columns]
    return results.select("trial", load=load).filter(*same).unique("seed").sort("seed")


def judge_one(results: Results, row: Row, base: Row, load: float, asked: Asked, level: float) -> Tried:
    """One candidate against vLLM's defaults at the load of the trial."""
    own, theirs = of(results, row, load), of(results, base, load)
    gain = advantage(results, own, theirs, asked.objective, level)
    tail = results.ratio(own, theirs, TAIL, level)
    default = not changed_settings(row, base)
    unmet, excess, missed = [], 0.0, False
    for c in asked.constraints:
        found = results.interval(own, c.metric, level)
        good, bad = (found.high, found.low) if c.sense == "<=" else (found.low, found.high)
        if not (good <= c.bound if c.sense == "<=" else good >= c.bound):
            unmet.append(f"{c}: {found.value:.4g} (95% {found.low:.4g} to {found.high:.4g})")
        missed |= bad > c.bound if c.sense == "<=" else bad < c.bound
        over = found.value - c.bound if c.sense == "<=" else c.bound - found.value
        excess += max(over, 0.0) / max(abs(c.bound), 1e-12)
    shown = () if default or gain.low > 1 else (NOT_SHOWN,)
    broken = () if default else (*shown, *_long_tail(own, theirs, tail, load, asked))
    bound = asked.tail_bound
    out = not default and (gain.high <= 1 + EQUAL or (bound is not None and tail.low > bound) or missed)
    means = own.select(pl.col([m for m in METRICS if m in own.columns]).mean()).row(0, named=True)
    predictor = bool(results.facts["policies"][row["policy"]]["has_predictor"])
    changes = len(changed_settings(row, base))
    return Tried(
        {**row, **means}, {load: gain}, {load: tail}, broken, tuple(unmet), excess, predictor, changes, out
    )


def around(results: Results, t: Tried, base: Row, asked: Asked, level: float) -> Tried:
    """The candidate with what was found at the loads around the load."""
    gains, tails, broken = dict(t.gains), dict(t.tails), list[str]()
    for at in asked.margins:
        own, theirs = of(results, t.row, at), of(results, base, at)
        gains[at] = advantage(results, own, theirs, asked.objective, level)
        tails[at] = results.ratio(own, theirs, TAIL, level)
        lower = METRICS[asked.objective].better == "lower"
        each = paired(*((theirs, own) if lower else (own, theirs)), asked.objective)[1]
        if not (gains[at].low >= 1 / WORSE or each.min() >= 1 / WORSE):
            broken.append(
                f"may be {1 / gains[at].low:.2f}x vLLM's defaults in {asked.objective} at load {at:g}"
            )
        broken += _long_tail(own, theirs, tails[at], at, asked)
    return replace(t, gains=gains, tails=tails, broken=tuple(broken))


def _long_tail(
    own: pl.DataFrame, theirs: pl.DataFrame, tail: Interval, load: float, asked: Asked
) -> tuple[str, ...]:
    """That the tail is not within the bound, neither with its interval nor on every single seed."""
    bound = asked.tail_bound
    if bound is None or not tail.high > bound or not paired(own, theirs, TAIL)[1].max() > bound:
        return ()
    return (f"its p99 TTFT may be {tail.high:.2f}x that of vLLM's defaults at load {load:g}",)


def advantage(
    results: Results, own: pl.DataFrame, base: pl.DataFrame, objective: str, level: float
) -> Interval:
    """The default's objective over the candidate's; the other way round where higher is better."""
    if METRICS[objective].better == "lower":
        return results.ratio(base, own, objective, level)
    return results.ratio(own, base, objective, level)


def choose(tried: dict[int, Tried], behind: Callable[[int, int], Interval]) -> tuple[int, str, bool]:
    """The candidate to recommend, why, and whether more seeds could tell that a better one is.

    `behind`: how far the first is behind the second, as a factor in the objective.
    """
    met = [i for i, t in tried.items() if not t.unmet]
    if not met:
        nearest = min(tried, key=lambda i: (tried[i].excess, tried[i].rank))
        return nearest, "no candidate is shown to meet every constraint, and this one comes nearest", True
    if 0 in met:
        fit = [i for i in met if i and not tried[i].broken and _gain(tried[i]) > 1 + EQUAL]
    else:  # the defaults do not meet the constraints: what does need not be better than they are
        fit = [i for i in met if not {*tried[i].broken} - {NOT_SHOWN}] or met
    if not fit:
        return 0, "nothing is shown to beat vLLM's defaults", False
    best = max(fit, key=lambda i: _gain(tried[i]))
    gaps = {i: behind(i, best) for i in fit if i != best}
    equal = [best, *(i for i in gaps if not gaps[i].low > 1 + EQUAL)]
    chosen = min(equal, key=lambda i: (tried[i].rank, -_gain(tried[i])))
    if chosen == best:
        return chosen, "none of the other candidates that may be recommended gains more", False
    reason = "no other candidate that may be recommended is shown to be better by more than 2%"
    others = [tried[i] for i in equal if i != chosen]
    if not tried[chosen].predictor and any(t.predictor for t in others):
        reason += ", and it needs no predictor"
    if all(t.changes > tried[chosen].changes for t in others):
        reason += ", and it changes least"
    return chosen, reason, gaps[chosen].value > 1 + EQUAL


def _gain(t: Tried) -> float:
    value = next(iter(t.gains.values())).value
    return value if value == value else 0.0


def _ahead(t: Tried, other: Tried) -> bool:
    return _gain(t) > _gain(other) * (1 + EQUAL)


def _behind(
    results: Results, tried: dict[int, Tried], asked: Asked, level: float
) -> Callable[[int, int], Interval]:
    """How far one candidate is behind another at the load, paired by seed."""

    def found(i: int, best: int) -> Interval:
        own, theirs = (of(results, tried[j].row, asked.load) for j in (i, best))
        return advantage(results, theirs, own, asked.objective, level)

    return found
