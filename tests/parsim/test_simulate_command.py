"""`parsim simulate`, as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

SMALL = [
    "--set", "num_gpu_blocks=200", "--set", "max_num_seqs=4", "--set", "max_model_len=2048",
    "--set", "max_num_batched_tokens=512",
]  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parsim", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    rows = [f"r{i},{i * 0.05:.2f},{20 + i},{5 + 37 * i % 60}" for i in range(60)]
    path.write_text(
        "\n".join(["request_id,arrival_s,prompt_tokens,output_tokens", *rows]) + "\n", encoding="utf-8"
    )
    return str(path)


def test_json_is_one_object_and_nothing_else(trace: str) -> None:
    done = run("simulate", trace, "--policy", "oracle", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["completed"] == 60


def test_the_oracle_helps_where_a_queue_forms_and_changes_nothing_where_none_does(
    trace: str, called: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    def mean(policy: str, *more: str) -> float:
        done = called("simulate", trace, "--policy", policy, "--json", *SMALL, *more)
        return float(json.loads(done.stdout)["mean_per_token_latency_ms"])

    assert mean("oracle") < mean("fcfs")
    assert mean("oracle", "--load", "0.1") == mean("fcfs", "--load", "0.1")


@pytest.mark.deep
def test_the_same_command_gives_the_same_bytes(trace: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        done = run(
            "simulate", trace, "--policy", "pars", "--emulate", "pars=0.6", "--out", str(tmp_path / name),
            "--steps", str(tmp_path / name / "steps.parquet"), "--steps-detail", *SMALL,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    for file in ("requests.parquet", "metrics.json", "steps.parquet"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    steps = pl.read_parquet(tmp_path / "one" / "steps.parquet")
    scheduled = steps["scheduled"].explode().struct.field("tokens").sum()
    assert scheduled == (steps["prefill_tokens"] + steps["decode_seqs"]).sum()


def test_limits_may_follow_one_option(trace: str) -> None:
    """As vLLM's `--goodput ttft:MS tpot:MS`."""
    done = run("simulate", trace, "--slo", "ttft:1", "e2el:1", "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["request_goodput"] == 0


def test_a_policy_without_its_scores_offers_both_ways(trace: str) -> None:
    done = run("simulate", trace, "--policy", "pars")
    assert done.returncode == 2
    assert "score.pars" in done.stderr
    assert "parsim score pars" in done.stderr
    assert "--emulate pars=TAU" in done.stderr


def test_a_long_prompt_on_a_small_engine_is_counted_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        "request_id,arrival_s,prompt_tokens,output_tokens\na,0,50000,10\nb,1,10,10\n", encoding="utf-8"
    )
    done = run("simulate", str(path), *SMALL)
    assert done.returncode == 0
    assert "rejected: 1 of 2" in done.stdout
    assert "a: prompt + response of 50010 tokens exceed" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "parz"], "did you mean 'pars'"),
        (["--set", "num_gpu_block=5"], "did you mean 'num_gpu_blocks'"),
        (["--set", "num_gpu_blocks"], "expected KEY=VALUE"),
        (["--load", "0"], "load"),
        (["--load", "nan"], "load"),
        (["extra"], "unexpected argument 'extra'"),
        (["--slo", "ttft:1", "extra"], "NAME:MS"),
        (["--slo", "ttft"], "NAME:MS"),
        (["--slo", "ttft:x"], "expected a number"),
        (["--victim", "first"], "last or worst"),
        (["--starvation-threshold-s", "-1"], "0 or more"),
        (["--emulate", "pars=3"], "between -1 and 1"),
        (["--emulate", "parss=0.5"], "did you mean 'pars'"),
        (["--policy", "fcfs", "--emulate", "pars=0.5"], "this run is under fcfs; write --policy pars"),
        (["--policy", "hrrn", "--emulate", "hrrn=0.5"], "has no predictor to emulate"),
        (["--steps-detail"], "--steps FILE"),
        (["--engine", "nope.yaml"], "cannot be read as an engine file"),
    ],
)
def test_bad_arguments_are_one_clear_line(
    trace: str, arguments: list[str], problem: str, called: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = called("simulate", trace, *arguments)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
