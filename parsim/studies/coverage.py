"""How often the verdict is right: questions whose long-run answer is known.

    python -m parsim.studies.coverage [COUNT] [FIRST]

Each question is an engine, a mix, a load and a predictor drawn at random, and a recording of `REQUESTS` requests of
them. The verdict sees the recording alone, as in a sweep. The truth is `TRUTH_RUNS` fresh recordings of the same
process, each at the offered load of the one that was shown, for the verdict is about that load.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from parsim.engine import EngineConfig
from parsim.engine.work import clairvoyant_score
from parsim.metrics import summarize
from parsim.scheduler.policy import Policy
from parsim.seeds import generator
from parsim.simulation import simulate
from parsim.stats import Interval, t_interval
from parsim.sweep import evidence, plan
from parsim.sweep.capacity import Capacity
from parsim.sweep.execute import Runner
from parsim.sweep.facts import bounds, describe
from parsim.sweep.judge import BEST_ORDER, HEADLINE, NOTICEABLE, Answer, Judgement, judge
from parsim.sweep.point import Point
from parsim.sweep.results import Results, collect
from parsim.sweep.spec import parse_spec
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload, load_trace
from parsim.traces import Trace, write_trace

REQUESTS, TRUTH_RUNS = 300, 24
SURE = 1.005
"""A verdict is called wrong only where the truth is beyond its edge by more than half a percent."""


@dataclass(frozen=True)
class Question:
    """A process that requests come from, and the engine that serves them."""

    seats: int
    mean_output: float
    cv: float
    prompt: float
    noise: float
    sign: int
    utilisation: float
    seed: int

    @property
    def engine(self) -> EngineConfig:
        step = {"base_s": 0.02, "prefill_token_s": 0.0001, "decode_seq_s": 0.0003}
        return EngineConfig.model_validate(
            {
                "max_num_seqs": self.seats,
                "max_num_batched_tokens": 512,
                "num_gpu_blocks": 8000,
                "max_model_len": 16384,
                "enable_prefix_caching": False,
                "async_scheduling": False,
                "step_time": step,
            }
        )

    def recording(self, number: int) -> Trace:
        """The recording `number` of the process; arrivals are Poisson."""
        rng = generator(1_000_003 * self.seed + number)

        def lengths(mean: float, cv: float) -> np.ndarray:
            s = math.sqrt(math.log(1 + cv * cv))
            drawn = np.ceil(rng.lognormal(math.log(mean) - s * s / 2, s, REQUESTS))
            return np.clip(drawn, 1, 4000).astype(np.int64)

        prompt, output = lengths(self.prompt, 1.0), lengths(self.mean_output, self.cv)
        frame = pl.DataFrame(
            {
                "request_id": [str(n) for n in range(REQUESTS)],
                "prompt_tokens": prompt,
                "output_tokens": output,
                "score.pars": self.sign * np.log(output) + rng.normal(0, self.noise, REQUESTS),
            }
        )
        gaps = rng.exponential(1.0, REQUESTS)
        mean_work = work_s(frame, self.engine) / REQUESTS
        arrival = (np.cumsum(gaps) - gaps[0]) * mean_work / self.utilisation
        return Trace(frame.with_columns(arrival_s=pl.Series(arrival)))


def work_s(frame: pl.DataFrame, engine: EngineConfig) -> float:
    """Seconds of engine that the requests are worth."""
    return float(frame.select(clairvoyant_score("work_s", engine).sum()).item())


def question(seed: int) -> Question:
    """A question drawn at random."""
    rng = generator(seed)
    return Question(
        seats=int(rng.choice([4, 8, 16, 32])),
        mean_output=float(rng.uniform(20, 80)),
        cv=float(rng.uniform(0.3, 1.6)),
        prompt=float(rng.choice([20, 100, 400])),
        noise=float(rng.uniform(0.2, 2.5)),
        sign=int(rng.choice([1, 1, 1, -1])),
        utilisation=float(rng.uniform(0.3, 1.6)),
        seed=seed,
    )


def asked(of: Question, shown: Trace, folder: Path) -> Judgement:
    """The verdict on one recording, by the code that a sweep runs."""
    write_trace(shown, folder / "shown.parquet")
    (folder / "engine.json").write_text(of.engine.model_dump_json())
    fields = {
        "trace": str(folder / "shown.parquet"),
        "engine": str(folder / "engine.json"),
        "policies": ["fcfs", "pars", "oracle"],
        "loads": [1],
        "studies": [],
        "scoring_cost": "free",
    }
    spec = parse_spec(fields, "question")
    first = load_trace(spec.trace, min(spec.seeds))
    grid = plan.resolve(spec, first)
    workload = Workload(spec.trace, folder / "traces", tuple(sorted(spec.seeds)), first, grid.engine)
    runner = Runner(workload, Store(folder / "points"), {}, jobs=1)
    unknown = Capacity(math.nan, math.nan, math.nan, REQUESTS)
    facts = describe(spec, grid, workload, [1.0], 1.0, unknown, None)
    facts["bound"] = bounds(workload, grid, [1.0], workload.seeds[0])

    def run(points: object, study: str, title: str) -> evidence.Runs:
        todo: list[Point] = list(points)  # type: ignore[call-overload]
        return [(study, *made) for made in zip(todo, runner.run(todo, title), strict=True)]

    names = ["fcfs", "pars", "oracle"]
    base = run(evidence.at(grid, names, [1.0], workload.seeds), "main", "")

    def table(more: evidence.Runs) -> Results:
        return collect(base + more, workload.rate_rps, facts)

    return judge(table(evidence.ranked(run, table, grid, facts)))


def truth(of: Question, shown: Trace, policy: str | Policy) -> Interval:
    """FCFS's mean latency per token over the policy's, over fresh recordings."""
    engine, ratios = of.engine, []
    offered = work_s(shown.frame, engine) / shown.span_s
    for number in range(1, TRUTH_RUNS + 1):
        fresh = of.recording(number)
        stretch = pl.col("arrival_s") * (work_s(fresh.frame, engine) / fresh.span_s / offered)
        trace = Trace(fresh.frame.with_columns(stretch))
        fcfs, own = (summarize(simulate(trace, engine, p).requests)[HEADLINE] for p in ("fcfs", policy))
        ratios.append(fcfs / own)
    return t_interval(ratios)


def wrong(answer: Answer, own: float, best: float) -> bool:
    """Whether the answer is contradicted by the truth: what `pars` and what the best clairvoyant order gains."""
    match answer:
        case "helps" | "helps the mean, hurts the tail":
            return own < NOTICEABLE / SURE
        case "hurts":
            return own > SURE / NOTICEABLE
        case "cannot help":
            return max(own, best) > NOTICEABLE * SURE
        case "makes no difference":
            return not 1 / (NOTICEABLE * SURE) < own < NOTICEABLE * SURE
        case _:
            return False


def main() -> None:
    """Print a line for each question, and after it the counts so far."""
    count, first = (int(text) for text in [*sys.argv[1:], *("200", "1")[len(sys.argv) - 1 :]])
    held, wrongs = 0, 0
    print("| question | answer | gain | runs | true gain | true gain of the best order | so far |")
    print("|---|---|---|---|---|---|---|")
    for done, seed in enumerate(range(first, first + count), 1):
        of = question(seed)
        shown = of.recording(0)
        with TemporaryDirectory() as folder:
            j = asked(of, shown, Path(folder))
        own = truth(of, shown, "pars")
        none = j.answer == "cannot help"
        best = truth(of, shown, evidence.CLAIRVOYANT[BEST_ORDER]) if none else Interval(*[math.nan] * 3)
        held += j.gain.low / SURE <= own.value <= j.gain.high * SURE
        wrongs += wrong(j.answer, own.value, best.value)
        told = f"held {held}, wrong {wrongs} of {done}"
        best_told = str(best) if none else ""
        print(f"| {seed} | {j.answer} | {j.gain} | {j.seeds} | {own} | {best_told} | {told} |", flush=True)


if __name__ == "__main__":
    main()
