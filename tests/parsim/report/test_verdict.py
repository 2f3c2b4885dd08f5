"""The verdict's words for three constructed cases, and every number in it computed again from the Parquet files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from scipy import stats

from parsim.report.build import write_report
from parsim.report.verdict import judge
from parsim.sweep.cures import gains
from parsim.sweep.duration import curve
from parsim.sweep.results import Results, read_results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

ENGINE = {
    "max_num_seqs": 8,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks": 2000,
    "max_model_len": 4096,
    "async_scheduling": False,
    "step_time": {"base_s": 0.02, "prefill_token_s": 0.0001, "decode_seq_s": 0.0005},
}
LENGTHS = {"prompt_mean": 60, "output_mean": 80, "output_cv": 1.5}
CASES = {
    "helps": ("burst(n=300)", 1.0),
    "cannot help": ("poisson(rate=0.2)", 1.0),
    "helps the mean, hurts the tail": ("poisson(rate=6)", 1.0),
}


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A finished sweep of one case: its answer and its folder."""
    folder = tmp_path_factory.mktemp("case")
    engine = folder / "engine.json"
    engine.write_text(json.dumps(ENGINE))
    arrivals, load = CASES[request.param]
    spec = parse_spec(
        {
            "name": "case",
            "trace": {"synthesize": {"arrivals": arrivals, "lengths": LENGTHS, "n": 600}},
            "engine": str(engine),
            "policies": ["fcfs", "pars", "oracle"],
            "emulate": {"pars": 0.9},
            "starvation_threshold_s": [None],
            "loads": [load, 1.5 * load],
            "focus_load": load,
            "seeds": [0, 1, 2],
            "studies": ["timeline"],
        },
        "case",
    )
    results = run_sweep(spec, folder / "out", Console(quiet=True), jobs=1)
    write_report(folder / "out", results)
    return request.param, folder / "out"


@pytest.mark.deep
def test_the_words_are_right(case: tuple[str, Path]) -> None:
    answer, folder = case
    results = read_results(folder)
    assert judge(results).answer == answer
    page = (folder / "report.html").read_text()
    box = page[page.index('<div class="verdict') : page.index("<dl>")]
    told = [html.unescape(re.sub(r"<[^>]+>", "", p)) for p in re.findall(r"<p[^>]*>(.*?)</p>", box, re.S)]
    expected = {
        "helps": r"^PARS \(emulated, tau 0\.90\) helps at load 1 .* lower .* no starvation guard and emulated",
        "cannot help": r"^No order of the requests can help at load 1 .* 5% of .*even the best clairvoyant order",
        "helps the mean, hurts the tail": r"^PARS \(emulated, tau 0\.90\) helps the mean but hurts the tail at load",
    }
    assert any(re.search(expected[answer], sentence) for sentence in told)
    row = results.facts["decision"]["row"]
    assert ("scheduler-cls" in results.facts["command"]) == (row["policy"] != "fcfs")
    if row["policy"] == "fcfs" and answer != "cannot help":  # the tail bound: the headline says so
        assert told[0].startswith("Recommended: vLLM's defaults") and "p99 TTFT may be" in told[0]
    assert "Emulated predictors" in page


def recompute(folder: Path, facts: dict[str, str], focus: float) -> float:
    """The number that a tag names, from the Parquet files alone."""
    frame = pl.read_parquet(folder / "results.parquet").filter(
        pl.col("study").is_in(["main", "clairvoyant", "seeds", "onset"])
    )
    known = json.loads((folder / "facts.json").read_text())
    load = float(facts.get("load", focus))
    level = known["level"] if load == focus else 0.95

    def column(policy: str, metric: str) -> np.ndarray:
        """On the seeds that every policy of the sweep ran."""
        at = frame.filter(pl.col("load") == load).unique(["policy", "seed"], maintain_order=True)
        of = [set(at.filter(pl.col("policy") == p)["seed"]) for p in known["policies"]]
        seeds = set.intersection(*(s for s in of if s))
        rows = at.filter(pl.col("policy") == policy, pl.col("seed").is_in(sorted(seeds)))
        return rows.sort("seed")[metric].to_numpy()

    def paired(policy: str, metric: str) -> np.ndarray:
        """FCFS over the policy, on every seed that both ran."""
        at = frame.filter(pl.col("load") == load).unique(["policy", "seed"])
        both = [at.filter(pl.col("policy") == p).select("seed", metric) for p in ("fcfs", policy)]
        rows = both[0].join(both[1], on="seed")
        return (rows[metric] / rows[f"{metric}_right"]).to_numpy()

    def interval(ratio: np.ndarray) -> tuple[float, float, float]:
        logs = np.log(ratio)
        half = stats.t.ppf(0.5 + level / 2, len(logs) - 1) * stats.sem(logs)
        return tuple(np.exp([logs.mean() - half, logs.mean(), logs.mean() + half]))  # type: ignore[return-value]

    what = facts["number"]
    if what.startswith("trial"):
        kind = "tails" if "tail" in what else "gains"
        side = {"low": 2, "high": 3}.get(what.split()[-1], 1)
        at = float(facts.get("at", focus))
        found = [entry[side] for t in known["trial"]["tried"] for entry in t[kind] if entry[0] == at]
        return min(found, key=lambda value: abs(value - float(facts["value"])))
    if what.startswith("cure"):
        return getattr(gains(read_results(folder))[facts["cure"]], what.split()[1].replace("gain", "value"))
    if what.startswith("duration"):
        rows = curve(read_results(folder)).filter(pl.col("requests") == int(facts["requests"]))
        return float(rows[what.split()[1]][0])
    if what in ("gain", "gain-low", "gain-high", "cost", "loss"):
        low, mid, high = interval(paired(facts["policy"], facts["metric"]))
        return {"gain": mid, "gain-low": low, "gain-high": high, "cost": 1 / mid, "loss": 1 / mid}[what]
    if what in ("most", "most-high"):
        bound = {e["seed"]: e["mean_per_token_latency_ms"] for e in known["bound"] if e["load"] == load}
        rows = frame.filter(
            pl.col("policy") == "fcfs", pl.col("load") == load, pl.col("seed").is_in(list(bound))
        )
        rows = rows.unique("seed").sort("seed")
        ratio = rows["mean_per_token_latency_ms"].to_numpy() / np.array([bound[s] for s in rows["seed"]])
        return interval(ratio)[1 if what == "most" else 2]
    if what == "ratio of means":
        metric = "mean_per_token_latency_ms"
        return float(column("fcfs", metric).mean() / column(facts["policy"], metric).mean())
    if what == "mean":
        return float(column(facts["policy"], facts["metric"]).mean())
    if what == "lasts":
        return float(known["trace"]["span_s"] / load)
    if what == "tau":
        return float(known["score_taus"][facts["policy"]])
    if what in ("capacity low", "capacity high"):
        return float(known["capacity"][what.split()[1]])
    if what == "queue share":
        return float(column("fcfs", "mean_queue_ms").mean() / column("fcfs", "mean_e2el_ms").mean())
    if what == "rate":
        return float(frame.filter(pl.col("load") == load)["rate_rps"][0])
    if what == "capacity":
        return float(known["capacity_rps"])
    if what == "share of capacity":
        return float(frame.filter(pl.col("load") == load)["rate_rps"][0]) / known["capacity_rps"]
    if what == "peak kv usage":
        series = pl.read_parquet(folder / "series.parquet").filter(
            pl.col("policy") == "fcfs", pl.col("waiting") > 0
        )
        return float(series["kv_usage"].max())  # type: ignore[arg-type]
    if what == "share of latency":
        queue, ttft, e2el = (column("fcfs", f"mean_{name}_ms").mean() for name in ("queue", "ttft", "e2el"))
        parts = {"waiting": queue, "prefill": ttft - queue, "decoding": e2el - ttft}
        return float(parts[facts["part"]] / e2el)
    if what == "promoted share":
        return float(column(facts["policy"], "promoted").mean() / column(facts["policy"], "completed").mean())
    if what in ("decile-cost", "decile-gain"):
        groups = pl.read_parquet(folder / "groups.parquet").join(frame, on="row")
        groups = groups.filter(
            pl.col("kind") == "decile", pl.col("group") == facts["decile"], pl.col("load") == load
        )
        of = {
            p: groups.filter(pl.col("policy") == p)["mean_e2el_ms"].mean() for p in ("fcfs", facts["policy"])
        }
        ratio = of[facts["policy"]] / of["fcfs"]  # type: ignore[operator]
        return ratio if what == "decile-cost" else 1 / ratio
    raise AssertionError(f"a number that this test cannot compute: {facts}")


@pytest.mark.deep
def test_every_number_in_the_verdict_comes_from_the_parquet(case: tuple[str, Path]) -> None:
    _, folder = case
    page = (folder / "report.html").read_text()
    box = page[page.index('<div class="verdict') : page.index("<dl>")]
    tags = re.findall(r'<b class="num"([^>]*)>([^<]+)</b>', box)
    assert len(tags) >= 8
    focus = json.loads((folder / "facts.json").read_text())["focus_load"]
    for attributes, shown in tags:
        facts = dict(re.findall(r'data-([\w-]+)="([^"]*)"', html.unescape(attributes)))
        expected = recompute(folder, facts, focus)
        assert float(facts["value"]) == pytest.approx(expected, rel=1e-9), facts
        assert shown_value(html.unescape(shown)) == pytest.approx(
            in_unit(expected, facts, shown), rel=6e-3, abs=0.5 if shown.endswith("%") else 0
        ), facts
    bare = re.sub(r'<b class="num".*?</b>', "", box)
    sentences = re.findall(r"<p>(.*?)</p>", bare, re.S)
    assert sentences
    assert not any(
        "%" in re.sub(r"95% interval|\(95%|than 2%|the 2%|the 5%|within 2%|wait 5%|95% intervals", "", s)
        for s in sentences
    )


def shown_value(text: str) -> float:
    return float(re.sub(r"[^0-9.]", "", text))


def in_unit(value: float, facts: dict[str, str], shown: str) -> float:
    """`value` in the unit in which it is shown."""
    if shown.endswith("%"):
        return value * 100
    if facts["number"] == "lasts":
        value *= 1e3
    if facts["number"] == "lasts" or (facts["number"] == "mean" and facts["metric"].endswith("_ms")):
        return (
            value
            / {"ms": 1.0, "s": 1e3, "in": 6e4}[shown.split()[-1][-2:] if shown.split()[-1] != "s" else "s"]
        )
    return value


@pytest.mark.deep
def test_the_page_is_the_same_when_written_again(case: tuple[str, Path]) -> None:
    _, folder = case
    before = (folder / "report.html").read_bytes()
    assert write_report(folder).read_bytes() == before
    assert isinstance(read_results(folder), Results)
