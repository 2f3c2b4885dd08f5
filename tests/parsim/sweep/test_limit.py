"""What the engine runs out of, told from a run that the test makes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from parsim.engine import load_engine
from parsim.sweep.limit import short_of
from parsim.sweep.plan import limit_values
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec


@pytest.mark.deep
@pytest.mark.parametrize(
    ("engine", "lengths", "limit"),
    [
        ({"max_num_seqs": 8, "num_gpu_blocks": 5000}, (100, 100), "max_num_seqs"),
        ({"max_num_seqs": 256, "num_gpu_blocks": 300}, (200, 200), "num_gpu_blocks"),
        ({"num_gpu_blocks": 20000, "max_num_batched_tokens": 256}, (3000, 4), "max_num_batched_tokens"),
    ],
)  # fmt: skip
def test_the_map_varies_what_is_short(
    tmp_path: Path, engine: dict[str, int], lengths: tuple[int, int], limit: str
) -> None:
    prompt, output = lengths
    spec = {
        "name": "x",
        "trace": {
            "synthesize": {
                "arrivals": "poisson(rate=50)",
                "lengths": {"prompt_mean": prompt, "prompt_cv": 0.2, "output_mean": output, "output_cv": 0.5,
                            "max_tokens": 4000},
                "n": 150,
            }
        },
        "set": {**engine, "max_model_len": 4000},
        "policies": ["fcfs", "oracle"],
        "loads": [0.01, 2],
        "seeds": [0],
        "studies": ["map"],
    }  # fmt: skip
    results = run_sweep(parse_spec(spec, "x"), tmp_path, Console(quiet=True), jobs=1)
    assert results.facts["limit"] == limit
    values = results.select("map")[limit].unique().to_list()
    assert len(values) >= 3 and engine[limit] in values


def test_where_nothing_waits_the_nearer_limit_is_taken() -> None:
    engine = load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 100})
    idle = {"waiting": [0, 0], "running": [10, 20]}
    assert short_of(pl.DataFrame({**idle, "kv_usage": [0.1, 0.3]}), engine) == "num_gpu_blocks"
    assert short_of(pl.DataFrame({**idle, "kv_usage": [0.1, 0.1]}), engine) == "max_num_seqs"


def test_a_limit_never_varies_into_what_the_engine_refuses() -> None:
    engine = load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 1000, "max_num_batched_tokens": 1500})
    seats = limit_values(engine, "max_num_seqs", 100)
    assert [c["max_num_seqs"] for c in seats] == [250, 500, 1000, 2000, 4000]
    assert [c.get("max_num_batched_tokens", 1500) for c in seats] == [1500, 1500, 1500, 2000, 4000]
    assert [c["max_num_batched_tokens"] for c in limit_values(engine, "max_num_batched_tokens", 100)] == [
        1000, 1500, 3000, 6000,
    ]  # fmt: skip
    blocks = [c["num_gpu_blocks"] for c in limit_values(engine, "num_gpu_blocks", engine.num_gpu_blocks * 8)]
    assert min(blocks) >= engine.num_gpu_blocks * 8 / engine.block_size
