"""A recording that the simulator made, for the tests of its readers and of the fit to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.engine import EngineConfig, StepTime
from parsim.validate.calibration.replay import Load, replay


@pytest.fixture(scope="session")
def engine() -> EngineConfig:
    """The engine that served it."""
    step_time = StepTime(
        base_s=0.012, prefill_token_s=8e-5, decode_seq_s=3e-5, kv_token_s=1.5e-7, attention_pair_s=5e-10
    )
    return EngineConfig(num_gpu_blocks=1500, max_num_seqs=32, async_scheduling=False, step_time=step_time)


@pytest.fixture(scope="session")
def served(engine: EngineConfig) -> pl.DataFrame:
    """120 requests as an engine with that step time serves them, at a load where a queue forms."""
    rng = np.random.default_rng(5)
    n = 120
    load = Load(
        [f"r{i}" for i in range(n)],
        np.cumsum(rng.exponential(0.12, n)).tolist(),
        rng.integers(20, 900, n).tolist(),
        rng.integers(5, 300, n).tolist(),
    )
    return replay(load, engine)


@pytest.fixture(scope="session")
def as_folder() -> Callable[[pl.DataFrame, Path], Path]:
    """Writes requests in the folder layout of a recording, and returns the folder."""

    def write(served: pl.DataFrame, folder: Path) -> Path:
        folder.mkdir()
        rows = [
            {
                "request_id": r["request_id"],
                "input_toks": r["prompt_tokens"],
                "output_toks": r["output_tokens"],
                "arrival_time": 1.7e9 + r["arrival_s"],
                "queued_ts": 500.0 + r["arrival_s"] + (0.02 if i else 0.0),
                "scheduled_ts": 500.0 + r["first_scheduled_s"],
                "first_token_ts": 500.0 + r["first_token_s"],
                "last_token_ts": 500.0 + r["finish_s"],
            }
            for i, r in enumerate(served.iter_rows(named=True))
        ]
        (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        meta = {
            "model": "meta-llama/Llama-3.1-8B",
            "vllm_version": "0.19.0",
            "engine_kwargs": {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": None},
            "kv_cache": {"num_gpu_blocks": 1500, "block_size": 16, "enable_prefix_caching": True},
            "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
            "resolved_config": {"scheduler_config": {"async_scheduling": False}},
        }
        (folder / "meta.json").write_text(json.dumps(meta))
        return folder

    return write
