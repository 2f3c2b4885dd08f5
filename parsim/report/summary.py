"""What a sweep prints when it ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from parsim.report.page import figure
from parsim.report.sections.latency import labels
from parsim.report.verdict import base_rows, gain, judge
from parsim.report.words import headline, sentences
from parsim.sweep.results import Results

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS = (
    ("mean_per_token_latency_ms", "mean ms/tok"),
    ("p99_ttft_ms", "p99 TTFT ms"),
    ("p99_e2el_ms", "p99 E2E ms"),
    ("max_wait_s", "wait s"),
)


def print_summary(results: Results, console: Console, page: Path) -> None:
    """A table of the policies at the load of the verdict, gains over all loads, and the answer in words."""
    from rich.table import Table

    j = judge(results)
    rate = results.facts["trace"]["rate_rps"]
    table = Table(
        title=f"At {figure(j.load * rate)} requests/s (load {figure(j.load)}); gain: FCFS mean ms/tok / the policy's",
        title_justify="left",
    )
    table.add_column("policy", no_wrap=True)
    for _, title in COLUMNS:
        table.add_column(title, justify="right")
    table.add_column("gain", justify="right", no_wrap=True)
    for name, label in labels(results).items():
        rows = base_rows(results, name, j.load)
        cells = [figure(float(rows[metric].mean())) for metric, _ in COLUMNS]  # type: ignore[arg-type]
        table.add_row(label, *cells, str(gain(results, name, j.load)) if name != "fcfs" else "")
    console.print(table)
    gains = Table(title="Gain in mean latency per token over FCFS, by requests/s", title_justify="left")
    gains.add_column("policy", no_wrap=True)
    for load in results.facts["loads"]:
        gains.add_column(figure(load * rate), justify="right")
    for name, label in labels(results).items():
        if name != "fcfs":
            gains.add_row(
                label, *(f"{gain(results, name, load).value:.2f}" for load in results.facts["loads"])
            )
    console.print(gains)
    console.print(f"[bold]{plain(headline(j, results))}[/bold]", highlight=False)
    for sentence in sentences(j, results):
        if sentence:
            console.print(plain(sentence), highlight=False)
    for broken in results.facts["decision"]["violated"]:
        console.print(f"No setting meets {broken}; the nearest one is chosen", highlight=False)
    console.print(f"Report: {page}", highlight=False)


def plain(html: Markup) -> str:
    """The text of a sentence without its markup."""
    return Markup(re.sub(r"<[^>]+>", "", html)).unescape()
