"""The search starts from the sweep's own settings, also where they lie at the ends of what it tries."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from rich.console import Console

from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

TRACE = {
    "synthesize": {"arrivals": "poisson(rate=50)", "lengths": {"prompt_mean": 5, "output_mean": 5}, "n": 12}
}


@pytest.mark.deep
@pytest.mark.parametrize("guard", [0, 1000, None])
def test_the_smallest_engine_and_any_guard_are_searched(tmp_path: Path, guard: float | None) -> None:
    fields = {
        "trace": TRACE,
        "set": {"max_num_seqs": 1, "max_num_batched_tokens": 1},
        "policies": ["fcfs", "oracle", "pars"],
        "starvation_threshold_s": [guard],
        "loads": [1],
        "seeds": [0],
        "studies": ["search"],
        "trials": 6,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Fixed parameter")
        results = run_sweep(parse_spec(fields, "s.yaml"), tmp_path, Console(quiet=True), jobs=1)
    found = results.select("search")
    assert found.height == 6
    assert found["completed"].to_list() == [12.0] * 6
