"""Executors: Ray through its own calls (a stand-in for the cluster), and clear errors without it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

from parsim.errors import UserError
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

FIELDS = {
    "name": "x",
    "trace": {"bundled": True, "requests": 60},
    "policies": ["fcfs", "oracle"],
    "loads": [1],
    "seeds": [0, 1],
    "studies": [],
}


class Cluster:
    """Ray's calls as far as they are used, run in place; tasks end in the reverse order of their start."""

    def __init__(self, running: bool = True) -> None:
        self.running, self.address, self.tasks = running, None, 0

    def is_initialized(self) -> bool:
        return False

    def init(self, address: str, **_: Any) -> None:
        self.address = address
        if not self.running:
            raise ConnectionError("no cluster")

    def put(self, value: Any) -> tuple[str, Any]:
        return ("ref", value)

    def remote(self, function: Any) -> SimpleNamespace:
        def start(reference: tuple[str, Any], *args: Any) -> SimpleNamespace:
            self.tasks += 1
            return SimpleNamespace(value=function(reference[1], *args))

        return SimpleNamespace(remote=start)

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: SimpleNamespace) -> Any:
        return reference.value


class Reference(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.mark.deep
def test_ray_gives_what_processes_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SimpleNamespace", Reference)
    cluster = Cluster()
    monkeypatch.setitem(sys.modules, "ray", cluster)  # type: ignore[arg-type]
    spec, quiet = parse_spec(FIELDS, "x"), Console(quiet=True)
    ray = run_sweep(spec, tmp_path / "ray", quiet, executor="ray")
    local = run_sweep(spec, tmp_path / "local", quiet, jobs=1)
    assert cluster.address == "auto"
    assert cluster.tasks == len(list((tmp_path / "local" / "points").glob("*.json"))) > 5
    assert ray.results.equals(local.results)


@pytest.mark.parametrize(
    ("module", "said"), [(None, "pip install 'parsim\\[ray\\]'"), (Cluster(False), "no running Ray")]
)
def test_a_missing_cluster_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", module)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        run_sweep(parse_spec(FIELDS, "x"), tmp_path, Console(quiet=True), executor="ray")


@pytest.mark.deep
def test_seeds_are_paired_across_policies(tmp_path: Path) -> None:
    """The same seed gives every policy the same arrivals and rows; another seed gives others."""
    fields = {**FIELDS, "studies": ["timeline"]}
    results = run_sweep(parse_spec(fields, "x"), tmp_path, Console(quiet=True), jobs=1)
    columns = ["request_id", "arrival_s", "prompt_tokens", "output_tokens"]
    fcfs, oracle = (
        results.requests.filter(pl.col("policy") == p).select(columns) for p in ("fcfs", "oracle")
    )
    assert fcfs.equals(oracle)
    first, second = (
        pl.read_parquet(tmp_path / "traces" / f"seed-{s}.parquet").select(columns) for s in (0, 1)
    )
    assert not first.equals(second)


@pytest.mark.deep
def test_a_recorded_trace_is_replayed_as_it_is_and_drawn_again_beside_it(tmp_path: Path) -> None:
    rows = [f"r{i},{i * 0.01},20,{1 + (i * 37) % 90}" for i in range(200)]
    file = tmp_path / "recorded.csv"
    file.write_text("\n".join(["request_id,arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    fields = {**FIELDS, "trace": str(file), "set": {"max_num_seqs": 2}, "seeds": [3, 4, 8]}
    results = run_sweep(parse_spec(fields, "x"), tmp_path / "out", Console(quiet=True), jobs=1)
    assert results.facts["seeds"] == [3, 4, 8]
    assert not results.facts["trace"]["redrawn"]
    traces = [pl.read_parquet(tmp_path / "out" / "traces" / f) for f in ("trace.parquet", "seed-4.parquet")]
    assert traces[0]["output_tokens"].to_list() == [1 + (i * 37) % 90 for i in range(200)]
    assert traces[1]["output_tokens"].to_list() != traces[0]["output_tokens"].to_list()
    fcfs, oracle = (results.select("main", policy=p).sort("seed") for p in ("fcfs", "oracle"))
    metric = "mean_per_token_latency_ms"
    gain = results.ratio(fcfs, oracle, metric)
    logs = np.log(fcfs[metric].to_numpy() / oracle[metric].to_numpy())
    half = stats.t.ppf(0.975, 1) * abs(logs[2] - logs[1]) / 2  # over the two that draw a part of it again
    assert np.log(gain) == pytest.approx([logs[1:].mean(), logs[1:].mean() - half, logs[1:].mean() + half])
    own = results.interval(fcfs, metric)
    assert own.low < own.value < own.high
