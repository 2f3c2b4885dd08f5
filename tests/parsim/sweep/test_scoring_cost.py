"""A sweep charges what scores cost, says so, and runs anew when the cost changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from parsim.errors import UserError
from parsim.report.sections.guard import scoring_words
from parsim.sweep.results import SCORING, Results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

DEAR = {"base_s": 1.0, "prompt_s": 0.0, "token_s": 0.0, "max_batch": 4, "provenance": "made up"}


def swept(folder: Path, cost: str) -> Results:
    fields = {
        "name": "scoring",
        "trace": {"bundled": True, "requests": 200},
        "set": {"max_num_seqs": 8},
        "policies": ["fcfs", "pars", "oracle"],
        "scoring_cost": cost,
        "loads": [2],
        "seeds": [0],
        "studies": [],
    }
    return run_sweep(parse_spec(fields, "x"), folder, Console(quiet=True), jobs=1)


@pytest.mark.deep
def test_scoring_is_charged_where_there_is_a_predictor(tmp_path: Path) -> None:
    file = tmp_path / "dear.json"
    file.write_text(json.dumps(DEAR))
    free, shipped, dear = (swept(tmp_path / "sweep", cost) for cost in ("free", "shipped", str(file)))
    latency = {
        name: dict(r.select("main").select("policy", "mean_per_token_latency_ms").iter_rows())
        for name, r in (("free", free), ("shipped", shipped), ("dear", dear))
    }
    assert latency["free"]["fcfs"] == latency["dear"]["fcfs"]
    assert latency["free"]["oracle"] == latency["dear"]["oracle"]
    assert latency["free"]["pars"] < latency["dear"]["pars"] < latency["free"]["fcfs"]
    assert shipped.select("main", policy="fcfs")[SCORING[0]].to_list() == [None]
    assert free.results[SCORING[0]].null_count() == free.results.height
    paid = dict(dear.select("main").select("policy", "scoring_s_per_request").iter_rows())
    assert paid["pars"] == pytest.approx(1 / 4, rel=0.1)
    assert "not charged" in scoring_words(free)
    words = scoring_words(dear)
    assert "Scoring is charged" in words and "made up" in words and " ms of that core" in words
    assert "a core beside the engine" in words
    file.write_text(json.dumps(DEAR | {"shares_core": True}))
    assert "the engine's own core" in scoring_words(swept(tmp_path / "sweep", str(file)))


def test_a_cost_that_is_not_there_stops_the_sweep_before_it_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected shipped, free or a file"):
        swept(tmp_path, "none.json")
    assert not (tmp_path / "points").exists()
