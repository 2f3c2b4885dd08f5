"""Speed of the simulator: `python tests/benchmarks/bench_simulate.py [TRACE.csv]`.

Three figures, each beside a bar of the project: the whole process on 20,000 requests; requests per second of
`simulate` when saturated; cost per request from 2,000 to 1,000,000 requests, and with 100,000 waiting. The baseline of
the same run is the same engine advanced step by step, each running request touched once a step.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import polars as pl

from parsim.engine import EngineConfig, load_engine
from parsim.engine.batch import Batch, BatchFormer
from parsim.engine.clock import Clock, Moment
from parsim.engine.engine import Engine
from parsim.engine.request import EngineRequest
from parsim.engine.run import Workload, run
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace, synthesize, write_trace

SETTINGS = {"num_gpu_blocks": 26312, "block_size": 16, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
COLUMNS = ("request_id", "arrival_s", "prompt_tokens", "output_tokens")


class TouchEach:
    """What a simulator pays that updates every running request in every step."""

    def __init__(self) -> None:
        self.computed: dict[EngineRequest, int] = {}

    def observe(self, batch: Batch, former: BatchFormer) -> None:
        computed = self.computed
        for request in former.running:
            computed[request] = computed.get(request, 0) + 1


def workload(requests: int, rate: float) -> Trace:
    """Poisson arrivals, lognormal lengths of mean 508 and 212 tokens."""
    lengths = {"prompt_mean": 508, "prompt_cv": 1.0, "output_mean": 212, "output_cv": 1.0, "max_tokens": 4096}
    return synthesize(f"poisson(rate={rate:g})", lengths, requests)


def whole_process(trace: Path) -> tuple[float, float]:
    """CPU-seconds and peak MiB of `parsim simulate` in a process of its own."""
    settings = [part for item in SETTINGS.items() for part in ("--set", f"{item[0]}={item[1]}")]
    command = [sys.executable, "-m", "parsim", "simulate", str(trace), "--json", *settings]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, after.ru_maxrss / 1024


def per_second(trace: Trace, config: EngineConfig, policy: str) -> tuple[float, float]:
    """Requests per CPU-second of `simulate`: tables in and out included, and the engine's run alone."""
    began = time.process_time()
    run = simulate(trace, config, parse_policy(policy))
    return len(trace) / (time.process_time() - began), len(trace) / run.metadata["cpu_s"]


def step_by_step(trace: Trace, config: EngineConfig) -> float:
    """Requests per CPU-second of the baseline."""
    began = time.process_time()
    run(_workload(trace), config, parse_policy("fcfs"), observer=TouchEach())
    return len(trace) / (time.process_time() - began)


def _workload(trace: Trace) -> Workload:
    return Workload(*(trace.frame[name] for name in COLUMNS))


def fleet(requests: int, rate: float, engines: int, config: EngineConfig) -> float:
    """CPU-us a request of so many engines in one environment, each at `rate`, fed round robin."""
    workload_ = _workload(workload(requests * engines, rate * engines))
    env = Clock()
    fleet = [Engine(env, config, parse_policy("fcfs")) for _ in range(engines)]

    def feed() -> Generator[Moment, None, None]:
        for number, request in enumerate(workload_.requests(config)):
            if request.arrival_s > env.now:
                yield Moment(env, request.arrival_s)
            fleet[number % engines].submit(request)

    env.process(feed())
    began = time.process_time()
    env.run_out()
    return 1e6 * (time.process_time() - began) / len(workload_)


def main(path: str | None = None) -> None:
    config = load_engine("llama-3.1-8b-a100-80g", SETTINGS)
    print(f"engine {config.name}, prefix caching and async scheduling on, {SETTINGS}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(path) if path else Path(folder) / "w20k.csv"
        if path is None:
            write_trace(workload(20_000, 10.0), file)
        cpu, mib = whole_process(file)
    print(f"whole process, 20,000 requests, fcfs: {cpu:.2f} CPU-s (bar 1.5), peak {mib:.0f} MiB (bar 250)")
    saturated = workload(200_000, 200.0)
    plain = config.model_copy(update={"enable_prefix_caching": False, "async_scheduling": False})
    for policy, bar in (("fcfs", 100_000), ("oracle", 70_000)):
        for name, engine in (("neither", plain), ("both", config)):
            whole, run = per_second(saturated, engine, policy)
            print(
                f"saturated, 200,000 requests, {policy}, {name} of prefix caching and async scheduling: "
                f"{run:,.0f} requests/s, {whole:,.0f} with the tables (bar {bar:,})"
            )
    some = workload(4_000, 10.0)
    ratio = per_second(some, config, "fcfs")[1] / step_by_step(some, config)
    print(f"against touching each running request in each step, 4,000 requests: {ratio:.1f} times as fast")
    alone, together = (min(fleet(4_000, 10.0, n, config) for _ in range(3)) for n in (1, 8))
    print(f"8 engines in one environment: {together / alone:.2f} times a request of one engine (bar 1.15)")
    for requests in (2_000, 20_000, 200_000, 1_000_000):
        trace = workload(requests, 8.0)
        print(
            f"{requests:,} requests at 8/s, oracle: {1e6 / per_second(trace, config, 'oracle')[0]:.1f} us a request"
        )
    backlog = saturated.frame.with_columns(arrival_s=pl.lit(0.0)).head(100_000)
    rate = per_second(Trace(backlog, saturated.metadata), config, "oracle")[0]
    print(f"100,000 waiting at once, oracle: {1e6 / rate:.1f} us a request")


if __name__ == "__main__":
    main(*sys.argv[1:2])
