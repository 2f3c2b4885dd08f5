"""What an engine sustains is a property of engine and mix, not of how many requests were recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.engine import EngineConfig, StepTime
from parsim.scheduler.policy import parse_policy
from parsim.simulation import simulate
from parsim.sweep.capacity import Capacity, stationary
from parsim.sweep.execute import Runner
from parsim.sweep.spec import TraceSource
from parsim.sweep.store import Store
from parsim.sweep.workload import Workload, load_trace
from parsim.traces import Trace, write_trace

ENGINE = EngineConfig(
    max_num_seqs=24,
    max_num_batched_tokens=512,
    num_gpu_blocks=4000,
    step_time=StepTime(base_s=0.02, prefill_token_s=0.0001, decode_seq_s=0.0005),
)


def sustained(source: TraceSource, folder: Path, engine: EngineConfig = ENGINE, seed: int = 0) -> Capacity:
    workload = Workload(source, folder / "traces", (seed,), load_trace(source, seed), engine)
    return stationary(Runner(workload, Store(folder / "points"), {}, jobs=1), workload, engine)


def lognormal(n: int) -> TraceSource:
    lengths = {"prompt_mean": 100, "output_mean": 120, "output_cv": 1.3}
    return TraceSource(synthesize={"arrivals": "poisson(rate=3)", "lengths": lengths, "n": n})


def recorded(folder: Path, output: np.ndarray, seed: int = 0) -> TraceSource:
    count = len(output)
    frame = pl.DataFrame(
        {
            "request_id": [str(i) for i in range(count)],
            "arrival_s": np.cumsum(np.random.default_rng(seed).exponential(0.5, count)),
            "prompt_tokens": np.full(count, 40),
            "output_tokens": output.astype(int),
        }
    )
    write_trace(Trace(frame, {"name": "t"}), folder / "t.parquet")
    return TraceSource(path=str(folder / "t.parquet"))


@pytest.mark.parametrize("seed", [0, 5])
def test_it_is_the_same_for_any_number_of_rows_of_one_mix(tmp_path: Path, seed: int) -> None:
    found = [sustained(lognormal(n), tmp_path / str(n), seed=seed).rps for n in (200, 1000, 16000)]
    assert found == pytest.approx([found[0]] * 3, rel=0.03)


def test_a_long_run_is_stable_below_it_and_not_above(tmp_path: Path) -> None:
    capacity = sustained(lognormal(1000), tmp_path)
    assert capacity.known
    waits = []
    for share in (0.93, 1.07):
        trace = load_trace(lognormal(12_000), 3)
        load = share * capacity.rps / (len(trace) / trace.span_s)
        run = simulate(trace, ENGINE, parse_policy("fcfs"), load=load).requests
        wait = (run["first_scheduled_s"] - run["arrival_s"]).to_numpy()
        waits.append(wait[-3000:].mean())
    assert waits[0] < 30 < 60 < waits[1]


@pytest.mark.parametrize("tokens", [7, 60, 301])
def test_equal_requests_by_hand(tmp_path: Path, tokens: int) -> None:
    engine = ENGINE.model_copy(update={"step_time": StepTime(base_s=0.05), "async_scheduling": False})
    found = sustained(recorded(tmp_path, np.full(300, tokens)), tmp_path, engine)
    by_hand = engine.max_num_seqs / (
        tokens * 0.05
    )  # a request takes a step a token, all seats share each step
    assert found.rps == pytest.approx(by_hand, rel=0.03)


def test_few_rows_cannot_tell_it_and_more_tell_it_better(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    found = {}
    for count in (20, 400, 4000):
        folder = tmp_path / str(count)
        folder.mkdir()
        found[count] = sustained(recorded(folder, np.ceil(rng.lognormal(4, 1.1, count))), folder)
    assert [c.known for c in found.values()] == [False, True, True]
    widths = [c.high / c.low for c in found.values()]
    assert widths[0] > widths[1] > widths[2]
