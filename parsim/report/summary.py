"""What a sweep prints when it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from parsim.metrics import METRICS
from parsim.report.page import figure
from parsim.report.phrases import at_rate, seconds_words
from parsim.report.sections.latency import grid_gain, labels, span
from parsim.report.verdict import gain, judge, mean_of
from parsim.report.words import headline, sentences
from parsim.sweep.results import Results

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNIT = {"ms": 1e-3, "s": 1.0}
"""Seconds of a metric's unit."""

COLUMNS = (
    ("mean_per_token_latency_ms", "mean a token"),
    ("p99_ttft_ms", "p99 TTFT"),
    ("p99_e2el_ms", "p99 latency"),
    ("max_wait_s", "longest wait"),
)
LABEL_WIDTH, LOAD_WIDTH = 20, 8
"""Characters of a policy's name and of one load's gain, with the lines between."""


def print_summary(results: Results, console: Console, page: Path) -> None:
    """A table of the policies at the load of the verdict, gains over all loads, and the answer in words."""
    j = judge(results)
    console.print(at_verdict(results, j.load))
    for table in gains(results, console.width):
        console.print(table)
    console.print(f"[bold]{plain(headline(j, results))}[/bold]", highlight=False)
    for sentence in sentences(j, results):
        if sentence:
            console.print(plain(sentence), highlight=False)
    for broken in results.facts["decision"]["violated"]:
        console.print(f"No setting meets {broken}; the nearest one is chosen", highlight=False)
    console.print(f"Report: {page}", highlight=False)


def at_verdict(results: Results, load: float) -> Table:
    """Means of every policy over the seeds that all have run, and its gain. Names wrap, numbers never."""
    from rich.table import Table

    table = Table(
        title=f"{at_rate(results, load)}; gain: FCFS's mean a token / the policy's",
        title_justify="left",
    )
    table.add_column("policy", overflow="fold")
    for _, title in COLUMNS:
        first, _, second = title.rpartition(" ")
        table.add_column(f"{first}\n{second}", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("95%", justify="right", no_wrap=True)
    for name, label in labels(results).items():
        means = [mean_of(results, name, load, metric) * UNIT[METRICS[metric].unit] for metric, _ in COLUMNS]
        won = gain(results, name, load)
        told = ("", "") if name == "fcfs" else (f"{won.value:.2f}", span(won))
        table.add_row(label, *map(seconds_words, means), *told)
    return table


def gains(results: Results, width: int) -> Iterator[Table]:
    """The gain of every policy at every load, in as many tables as the width asks for."""
    from rich.table import Table

    loads = results.facts["loads"]
    names = {name: label for name, label in labels(results).items() if name != "fcfs"}
    most = max(1, (width - LABEL_WIDTH) // LOAD_WIDTH)
    each = max(1, -(-len(loads) // -(-len(loads) // most)))
    for first in range(0, len(loads) if names else 0, each):
        some = loads[first : first + each]
        table = Table(title="Gain in mean latency per token over FCFS, by requests/s", title_justify="left")
        table.add_column("policy", overflow="fold")
        for load in some:
            table.add_column(figure(load * results.facts["trace"]["rate_rps"]), justify="right", no_wrap=True)
        for name, label in names.items():
            table.add_row(label, *(f"{grid_gain(results, name, load).value:.2f}" for load in some))
        yield table


def plain(html: Markup) -> str:
    """The text of a sentence without its markup."""
    return Markup(re.sub(r"<[^>]+>", "", html)).unescape()
