"""A real vLLM server on this machine: cancelled requests, and a server that is killed midway."""

from __future__ import annotations

import json
import threading
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from parsim.scheduler.policy import POLICIES


@pytest.mark.vllm
def test_cancelled_requests_and_a_killed_server(tmp_path: Path) -> None:
    if find_spec("vllm") is None or find_spec("aiohttp") is None:
        pytest.skip("vLLM or aiohttp is not installed")
    from parsim.validate.cli import app
    from parsim.validate.live.architectures import write_model_folder
    from parsim.validate.live.server_process import running_server, server_facts
    from parsim.validate.tiers.policies import CPU_SETTINGS

    model = write_model_folder("tiny", tmp_path / "tiny")
    settings = CPU_SETTINGS | {"num_gpu_blocks": 200}
    with running_server(model, settings, POLICIES["fcfs"], tmp_path / "server.log", dummy=True) as server:
        assert server_facts(server.url) | {
            "block_size": 32,
            "num_gpu_blocks": 200,
            "max_model_len": 1024,
        } == server_facts(server.url)
        common = ["server", "bundled", "--url", server.url, "--seed", "3"]
        out = tmp_path / "cancelled"
        result = CliRunner().invoke(
            app, [*common, "--requests", "60", "--load", "2", "--cancel-share", "0.05", "--out", str(out)]
        )
        assert result.exit_code == 0, result.output
        kept = pl.read_parquet(out / "requests-fcfs.parquet")
        counts = dict(kept["status"].value_counts().iter_rows())
        assert set(counts) == {"ok", "cancelled"}
        ended = kept.filter(pl.col("status") == "ok")
        assert (ended["finish_reason"] == "length").all()
        assert json.loads((out / "validation.json").read_text())["counts"]["fcfs"] == counts
        threading.Timer(2.0, server.process.kill).start()
        out = tmp_path / "killed"
        result = CliRunner().invoke(app, [*common, "--requests", "200", "--out", str(out)])
    assert result.exit_code == 1, result.output
    assert "lost:" in result.output
    kept = pl.read_parquet(out / "requests-fcfs.parquet")
    assert kept.height == 200
    statuses = set(kept["status"])
    assert "failed" in statuses
    assert statuses <= {"ok", "failed", "not sent"}
