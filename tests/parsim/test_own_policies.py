"""A policy of one's own, from a function in a file and from a predictor's name, wherever policies run."""

from __future__ import annotations

import doctest
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import parsim
from parsim.errors import UserError
from parsim.scheduler.policy import Policy, parse_policy
from parsim.scheduler.settings import read_settings
from parsim.traces import Trace, write_trace

ORDER = """
def fewest_tokens(request):
    return request.prompt_tokens

def longest_wait(request, now_s):
    return request.arrival_s - now_s

def peeks(request):
    return request.output_tokens

def broken(request):
    return {}["nothing"]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module `my_orders` in the working directory; its name."""
    (tmp_path / "my_orders.py").write_text(ORDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "my_orders"
    sys.modules.pop("my_orders", None)


def drawn(count: int = 60) -> Trace:
    """Requests that queue, with the scores of a predictor called mine."""
    rng = np.random.default_rng(5)
    output = rng.integers(1, 200, count)
    frame = pl.DataFrame(
        {
            "request_id": [f"r{n}" for n in range(count)],
            "arrival_s": np.arange(count) * 0.01,
            "prompt_tokens": rng.integers(1, 400, count),
            "output_tokens": output,
            "score.mine": output + rng.normal(0, 30, count),
        }
    )
    return Trace(frame, {"name": "drawn"})


def engine() -> Any:
    return parsim.load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 2})


def order_of_service(run: Any) -> list[str]:
    return run.requests.sort("first_scheduled_s", "request_id")["request_id"].to_list()


@pytest.mark.deep
def test_the_examples_of_the_package_hold() -> None:
    assert doctest.testmod(parsim) == (0, 13)


@pytest.mark.parametrize("place", ["my_orders:fewest_tokens", "my_orders.py:fewest_tokens"])
def test_a_function_of_ones_own_file_orders_a_simulation(own: str, place: str) -> None:
    trace = drawn()
    assert order_of_service(parsim.simulate(trace, engine(), place)) == order_of_service(
        parsim.simulate(trace, engine(), "prompt-sjf")
    )


def test_a_function_that_looks_at_the_time_is_asked_every_step(own: str) -> None:
    policy = parse_policy(f"{own}:longest_wait")
    assert policy.reorders_with_time
    assert order_of_service(parsim.simulate(drawn(), engine(), policy)) == order_of_service(
        parsim.simulate(drawn(), engine(), "fcfs")
    )


def test_a_function_that_needs_the_response_length_is_clairvoyant(own: str) -> None:
    policy = parse_policy(f"{own}:peeks")
    assert policy.clairvoyant and not policy.runs_in_vllm
    assert not parse_policy(f"{own}:fewest_tokens").clairvoyant
    assert order_of_service(parsim.simulate(drawn(), engine(), policy)) == order_of_service(
        parsim.simulate(drawn(), engine(), "oracle")
    )


def test_any_score_of_the_trace_is_a_policy_and_unknown_names_are_told(own: str) -> None:
    trace = drawn()
    lengths = trace.frame["score.mine"]
    as_pars = Trace(trace.frame.with_columns(lengths.alias("score.pars")), trace.metadata)
    served = order_of_service(parsim.simulate(as_pars, engine(), "pars"))
    for name in ("mine", "score.mine"):
        assert order_of_service(parsim.simulate(trace, engine(), name)) == served
    with pytest.raises(UserError, match="did you mean 'mine'"):
        parsim.simulate(trace, engine(), "mime")
    with pytest.raises(UserError, match=r"needs the column score\.yours"):
        parsim.simulate(trace, engine(), "score.yours")


def test_hrrn_on_a_predictors_scores_goes_by_the_lengths_that_were_learned() -> None:
    """On an odd scale of their own; before lengths are known it is first come, first served."""
    trace = drawn(600)
    right = Trace(
        trace.frame.with_columns((pl.col("output_tokens") / 100 - 9.0).alias("score.right")), trace.metadata
    )
    policy = parse_policy("hrrn(right)", ["right"])
    assert policy.runs_in_vllm and policy.reference == "hrrn(score.right)"
    start = Trace(right.frame.head(30), right.metadata)
    assert order_of_service(parsim.simulate(start, engine(), policy)) == order_of_service(
        parsim.simulate(start, engine(), "fcfs")
    )

    def per_token(name: str) -> float:
        unguarded = replace(parse_policy(name, ["right"]), starvation_threshold_s=None)
        run = parsim.simulate(right, engine(), unguarded)
        return float(parsim.metrics.summarize(run.requests)["mean_per_token_latency_ms"])

    assert per_token("hrrn(right)") == pytest.approx(per_token("hrrn"), rel=0.5)
    assert per_token("hrrn(right)") < 0.4 * per_token("fcfs")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("my_orders:fewest_token", "did you mean 'fewest_tokens'"),
        ("my_ordres:fewest_tokens", "no module 'my_ordres'"),
        ("nowhere.py:f", "no such file"),
        ("hrrn(fcfs)", "fcfs ranks by no score"),
        ("fcfs(pars)", "fcfs ranks by no score"),
        ("hrrr(pars)", "did you mean 'hrrn'"),
    ],
)
def test_an_order_that_is_none_is_refused_with_the_mend(own: str, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_policy(text)


def test_a_function_that_fails_is_named_with_the_request(own: str) -> None:
    with pytest.raises(UserError, match=r"order my_orders:broken: failed on request 'r\d+': KeyError"):
        parsim.simulate(drawn(), engine(), "my_orders:broken")


@pytest.mark.deep
def test_both_go_through_a_sweep_and_its_report(own: str, tmp_path: Path) -> None:
    write_trace(drawn(), tmp_path / "drawn.parquet")
    results = parsim.sweep(
        tmp_path / "drawn.parquet",
        policies=["fcfs", "mine", "my_orders:fewest_tokens"],
        set={"max_num_seqs": 2},
        loads=[1.0],
        seeds=[0],
        studies=[],
        out=tmp_path / "out",
        jobs=1,
    )
    assert list(results.facts["policies"]) == ["fcfs", "mine", "my_orders:fewest_tokens"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "my_orders:fewest_tokens" in text and "mine" in text
    means = {row["policy"]: row["mean_e2el_ms"] for row in results.results.iter_rows(named=True)}
    assert means["mine"] < means["fcfs"]
    assert "score.mine" in results.facts["command"] or "fewest_tokens" in results.facts["command"]


def test_a_changed_function_is_run_again(own: str, tmp_path: Path) -> None:
    from parsim.sweep.point import Point

    policy = parse_policy("my_orders.py:fewest_tokens")
    point = Point(policy, engine(), 1.0, 0)
    before = point.key("trace", {}, None)
    (tmp_path / "my_orders.py").write_text(ORDER.replace("request.prompt_tokens", "-request.prompt_tokens"))
    assert point.key("trace", {}, None) != before


def test_the_scheduler_takes_ones_own_predictor_by_name_where_one_is_at_work() -> None:
    def policy(config: dict[str, str], environment: dict[str, str]) -> Policy:
        return read_settings(config, environment).resolved_policy()

    assert policy({"policy": "score.mine"}, {}).score == "score.mine"
    assert policy({"policy": "mine"}, {"PARSIM_PREDICTOR": "/models/mine"}).score == "score.mine"
    assert policy({"policy": "mine", "scorer": "m:create"}, {}).score == "score.mine"
    with pytest.raises(UserError, match=r"score\.NAME"):
        policy({"policy": "mine"}, {})
    with pytest.raises(UserError, match="did you mean 'fcfs'"):
        policy({"policy": "fcsf", "scorer": "m:create"}, {})
