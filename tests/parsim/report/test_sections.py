"""Sentences and groups of the page's sections."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest
from rich.console import Console

from parsim.report.build import page
from parsim.report.sections.latency import span
from parsim.report.sections.regime import between
from parsim.report.sections.settings import curves
from parsim.report.summary import at_verdict, gains
from parsim.stats import Interval
from parsim.sweep.measure import measure
from parsim.sweep.plan import resolve
from parsim.sweep.point import Point
from parsim.sweep.results import Results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec
from parsim.traces import Trace


def trace(outputs: list[int]) -> Trace:
    rows = len(outputs)
    return Trace(
        pl.DataFrame(
            {
                "request_id": [f"r{i:03d}" for i in range(rows)],
                "arrival_s": [0.01 * i for i in range(rows)],
                "prompt_tokens": [20] * rows,
                "output_tokens": outputs,
            }
        ),
        {"name": "drawn"},
    )


@pytest.mark.parametrize(
    ("outputs", "groups"),
    [
        ([7] * 40, [("1", 7, 7, 40)]),
        ([7] * 20 + [9] * 20, [("1", 7, 7, 20), ("10", 9, 9, 20)]),
        ([5] * 4 + [6] * 30 + [50] * 6, [("1", 5, 5, 4), ("2", 6, 6, 30), ("10", 50, 50, 6)]),
    ],
)
def test_equal_lengths_are_in_one_group(outputs: list[int], groups: list[tuple[str, int, int, int]]) -> None:
    requests = trace(outputs)
    spec = parse_spec({"name": "x", "policies": ["fcfs", "oracle"]}, "x")
    grid = resolve(spec, requests)
    outcome = measure(requests, Point(grid.base["fcfs"], grid.engine, 1.0, 0), {}, None)
    found = [(g["group"], g["shortest"], g["longest"], g["requests"]) for g in outcome.groups]
    assert found == groups


def test_from_where_on_there_is_a_queue() -> None:
    assert between([1.0, 2.0, 4.0], [False, False, True]) == "from somewhere between 2 and 4 requests/s on"
    assert between([1.0, 2.0], [True, True]) == "at every load from 1 requests/s on"
    assert between([1.0, 2.0], [False, False]) == "at no load that was run"


def test_an_interval_that_is_its_value_is_not_told() -> None:
    assert span(Interval(1.0, 1.0, 1.0)) == ""
    assert span(Interval(1.0, float("nan"), float("nan"))) == ""
    assert span(Interval(1.2, 1.0, 1.4)) == "1.00 to 1.40"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Results:
    fields = {
        "name": "swept",
        "trace": {"bundled": True, "requests": 40},
        "set": {"max_num_seqs": [4, 64], "long_prefill_token_threshold": [0, 8]},
        "policies": ["fcfs", "oracle", "prompt-sjf", "pars", "pointwise", "listwise"],
        "starvation_threshold_s": [None, 30],
        "loads": [0.1, 0.2, 0.5, 0.7, 1, 1.3, 2, 3],
        "seeds": [0],
        "studies": [],
    }
    folder = tmp_path_factory.mktemp("swept")
    return run_sweep(parse_spec(fields, "x"), folder, Console(quiet=True), jobs=1)


@pytest.mark.deep
def test_every_swept_setting_has_its_own_curve(swept: Results) -> None:
    settings = curves(swept, "pars")["setting"].unique().to_list()
    assert len(settings) == 8
    assert "long_prefill_token_threshold 8, max_num_seqs 64, guard 30 s" in settings
    assert len(curves(swept, "fcfs")["setting"].unique()) == 4
    html = page(swept)
    assert "What the swept settings do" in html
    assert all(json.dumps(setting)[1:-1] in html for setting in settings)


@pytest.mark.deep
def test_no_number_of_the_summary_is_cut_at_80_columns(swept: Results) -> None:
    out = io.StringIO()
    for table in (at_verdict(swept, swept.facts["focus_load"]), *gains(swept, 80)):
        Console(width=80, file=out).print(table)
    text = out.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("Oracle SJF") == 3
    runs = {name: swept.base[name, swept.facts["focus_load"]] for name in swept.facts["policies"]}
    seeds = sorted(set.intersection(*(set(rows["seed"]) for rows in runs.values())))
    for name in ("pars", "oracle"):
        mean = runs[name].filter(pl.col("seed").is_in(seeds))["mean_per_token_latency_ms"].mean()
        assert f"{mean:.3g} ms" in text
