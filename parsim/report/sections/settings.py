"""A curve for each setting that the sweep file varies."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from parsim.report import charts
from parsim.report.page import Chart, Columns, Section
from parsim.report.phrases import display
from parsim.report.verdict import HEADLINE
from parsim.sweep.results import Results

KEYS = ("changed", "starvation_threshold_s", "victim")
"""What tells the settings of one policy apart."""


def section(results: Results) -> Section | None:
    """Latency against load for every value of every swept setting, under FCFS and under the candidate policy."""
    names = dict.fromkeys(name for name in ("fcfs", results.facts["candidate"]) if name)
    frames = {name: curves(results, name) for name in names}
    blocks = [
        Chart(
            charts.by_setting(frame, "Mean latency per token", "ms"),
            display(results, name),
            "mean latency per token, means over seeds",
        )
        for name, frame in frames.items()
        if frame["setting"].n_unique() > 1
    ]
    if not blocks:
        return None
    lead = "Every value that this sweep varies, one curve each; the sections around use the first."
    return Section("What the swept settings do", [Columns(blocks)], lead, "swept")


def curves(results: Results, policy: str) -> pl.DataFrame:
    """setting (text), rate_rps, value of each setting of a policy in the grid, in the order of the sweep file."""
    main = results.select("main", policy=policy)
    varied = [key for key in KEYS if main[key].n_unique() > 1]
    frame = main.group_by(*KEYS, "rate_rps", maintain_order=True).agg(value=pl.col(HEADLINE).mean())
    texts = [told(row, varied) for row in frame.iter_rows(named=True)]
    return frame.select("rate_rps", "value", setting=pl.Series(texts, dtype=pl.String))


def told(row: dict[str, Any], varied: list[str]) -> str:
    """The settings of a row among those that are varied, in words."""
    words = []
    if "changed" in varied:
        words += [f"{name} {value}" for name, value in json.loads(row["changed"]).items()]
    if "starvation_threshold_s" in varied:
        guard = row["starvation_threshold_s"]
        words.append("no guard" if guard is None else f"guard {guard:g} s")
    if "victim" in varied:
        words.append(f"victim {row['victim']}")
    return ", ".join(words) or "as given"
