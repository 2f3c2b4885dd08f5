"""CPU time of this checkout beside another: `python tests/benchmarks/bench_pair.py OTHER_CHECKOUT [ROUNDS]`.

Each workload runs in turn in both, several rounds in one go, so that both meet the same machine; the best counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
REPEATS = 3


def measure() -> dict[str, float]:
    """Best CPU-us a request of `simulate` for each workload of `bench_simulate`, in the checkout on the path."""
    import time

    from parsim.engine import EngineConfig, StepTime, load_engine
    from parsim.scheduler.policy import parse_policy
    from parsim.simulation import simulate
    from parsim.traces import Trace, synthesize

    settings = {
        "num_gpu_blocks": 26312,
        "block_size": 16,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
    }
    terms = {"base_s": 0.0105, "prefill_token_s": 6e-5, "decode_seq_s": 1e-5, "kv_token_s": 7e-8}
    preset = load_engine("llama-3.1-8b-a100-80g", settings)
    both = preset.model_copy(update={"step_time": StepTime(**terms)})  # a preset's own times change
    neither = both.model_copy(update={"enable_prefix_caching": False, "async_scheduling": False})
    short = both.model_copy(update={"num_gpu_blocks": 3000})
    lengths = {"prompt_mean": 508, "prompt_cv": 1.0, "output_mean": 212, "output_cv": 1.0, "max_tokens": 4096}

    def workload(requests: int, rate: float) -> Trace:
        return synthesize(f"poisson(rate={rate:g})", lengths, requests)

    def us(trace: Trace, engine: EngineConfig, policy: str) -> float:
        began = time.process_time()
        simulate(trace, engine, parse_policy(policy))
        return 1e6 * (time.process_time() - began) / len(trace)

    moderate, saturated = workload(6_000, 10.0), workload(10_000, 200.0)
    rows = {
        "10/s, fcfs, neither": (moderate, neither, "fcfs"),
        "10/s, fcfs, both": (moderate, both, "fcfs"),
        "10/s, oracle, both": (moderate, both, "oracle"),
        "200/s, fcfs, neither": (saturated, neither, "fcfs"),
        "200/s, fcfs, both": (saturated, both, "fcfs"),
        "200/s, oracle, neither": (saturated, neither, "oracle"),
        "200/s, oracle, both": (saturated, both, "oracle"),
        "40/s, oracle, short of memory": (workload(1_500, 40.0), short, "oracle"),
    }
    return {name: min(us(*row) for _ in range(REPEATS)) for name, row in rows.items()}


def measured_in(checkout: Path) -> dict[str, float]:
    """`measure` in a process of its own."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import bench_pair, json; "
    command = [sys.executable, "-c", code + "print(json.dumps(bench_pair.measure()))"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, check=True, capture_output=True, env=environment, cwd=checkout)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main(other: str, rounds: str = "3") -> None:
    pairs = [(measured_in(Path(other)), measured_in(HERE)) for _ in range(int(rounds))]
    print("'neither', 'both': of prefix caching and async scheduling")
    for name in pairs[0][0]:
        before, now = min(pair[0][name] for pair in pairs), min(pair[1][name] for pair in pairs)
        print(f"{name}: {before:.1f} us a request there, {now:.1f} here, {now / before:.2f} times")


if __name__ == "__main__":
    main(*sys.argv[1:3])
