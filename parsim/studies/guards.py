"""Guards against starvation beside each other, over loads and how long an overload lasts.

    python -m parsim.studies.guards

Requests of the bundled trace drawn anew, ranked by the shipped predictor's real scores: an overload of some duration,
then a calm. Figures are shares of FCFS on the same arrivals.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from parsim.engine import EngineConfig, load_engine
from parsim.metrics import summarize
from parsim.scheduler.policy import Policy, parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace, bundled_trace

LOADS, DURATIONS_S = (1.1, 1.5), (120.0, 600.0, 1800.0)
METRICS = ("mean_e2el_ms", "mean_per_token_latency_ms", "p99_e2el_ms", "max_wait_s")
GUARDS: dict[str, dict[str, float | None]] = {
    "none": {},
    **{f"{s} s": {"starvation_threshold_s": float(s)} for s in (30, 120, 300)},
    **{f"{r} s a token": {"starvation_s_per_token": r} for r in (0.1, 0.5, 2.0)},
    **{f"ageing {a} tokens/s": {"ageing_tokens_per_s": a} for a in (0.5, 2.0, 8.0)},
}


def arrivals(rate: float, duration_s: float, seed: int) -> Trace:
    """An overload at `rate` requests a second for so long, then a quarter as many at a third of that rate."""
    rng = np.random.default_rng(seed)
    frame = bundled_trace().frame.drop("client_id", strict=False)
    busy = np.cumsum(rng.exponential(1 / rate, int(rate * duration_s)))
    calm = busy[-1] + np.cumsum(rng.exponential(3 / rate, int(rate * duration_s / 4)))
    times = np.concatenate([busy, calm])
    rows = frame[rng.integers(0, frame.height, len(times))]
    ids = [str(number) for number in range(len(times))]
    return Trace(rows.with_columns(pl.Series("request_id", ids), pl.Series("arrival_s", times)))


def figures(trace: Trace, engine: EngineConfig, policy: Policy) -> np.ndarray:
    """The metrics of a run."""
    found = summarize(simulate(trace, engine, policy).requests)
    return np.array([found[metric] for metric in METRICS])


def main() -> None:
    """Print a table in Markdown."""
    engine = load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 64})
    burst = simulate(arrivals(1e6, 0.003, 0), engine, "fcfs").requests
    capacity = burst.height / float(burst["finish_s"].to_numpy().max())
    bare = replace(parse_policy("pars"), starvation_threshold_s=None)
    print("| load | overload | guard | mean E2E | mean per token | p99 E2E | longest wait |")
    print("|---|---|---|---|---|---|---|")
    for load in LOADS:
        for duration_s in DURATIONS_S:
            trace = arrivals(load * capacity, duration_s, 1)
            fcfs = figures(trace, engine, parse_policy("fcfs"))
            for name, guard in GUARDS.items():
                shares = figures(trace, engine, replace(bare, **guard)) / fcfs  # type: ignore[arg-type]
                cells = " | ".join(f"{share:.2f}" for share in shares)
                print(f"| {load} | {duration_s:.0f} s | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
