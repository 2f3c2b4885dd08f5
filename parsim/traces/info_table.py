"""Figures of a trace as a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(figures: dict[str, Any]) -> None:
    """Print what `parsim.traces.info.describe` found."""
    console = Console()
    facts = Table(
        show_header=False, box=None, title=f"{escape(figures['name'])}: {figures['requests']:,} requests"
    )
    for label, text in _facts(figures):
        facts.add_row(label, text)
    lengths = Table("tokens", "mean", "p50", "p90", "p95", "p99", "max")
    for label, key in (
        ("prompt", "prompt_tokens"),
        ("response", "output_tokens"),
        ("KV (prompt + response)", "kv_tokens_per_request"),
    ):
        lengths.add_row(label, *(f"{value:,.0f}" for value in figures[key].values()))
    about = Table(show_header=False, box=None, title="provenance")
    for key, text in figures["metadata"].items():
        if key in ("reading", "notes"):
            continue  # said by the command, as by every other that reads a trace
        about.add_row(key, escape(text))
    console.print(facts)
    console.print(lengths)
    if figures["rankings"]:
        console.print(_rankings(figures["rankings"]))
    for lack in figures["lacks"]:
        console.print(f"lacks: {lack}", highlight=False)
    console.print(about)


def _rankings(rows: list[dict[str, Any]]) -> Table:
    title = "Kendall's tau-b of scores with response lengths: over all requests, and within clients"
    clients = [escape(str(client)) for client in rows[0]["clients"]]
    table = Table("score", "all", *clients, title=title if clients else title.split(":")[0])
    for row in rows:
        taus = [row["tau_b"], *row["clients"].values()]
        table.add_row(escape(row["score"]), *("undefined" if tau is None else f"{tau:.3f}" for tau in taus))
    return table


def _facts(figures: dict[str, Any]) -> list[tuple[str, str]]:
    facts = []
    if figures.get("span_s") is not None:
        rate, cv = figures["rate_per_s"], figures["interarrival_cv"]
        facts.append(("span", f"{figures['span_s']:,.1f} s"))
        facts.append(("rate", "all at once" if rate is None else f"{rate:,.3g} requests/s"))
        if cv is not None:
            facts.append(("burstiness", f"{cv:.2f} inter-arrival CV (1 = Poisson)"))
    if figures.get("tick_s") is not None:
        share = f"{figures['zero_gaps']:.0%} of gaps are zero"
        facts.append(
            ("ticks", f"time stamps rounded to {figures['tick_s']:.3g} s ({share}): spread them (--jitter)")
        )
    rank = figures["spearman"]
    facts.append(
        ("prompt/response Spearman", "undefined: constant lengths" if rank is None else f"{rank:.2f}")
    )
    facts.append(("KV tokens demanded", f"{figures['kv_tokens']:,} in all (sum of prompt and response)"))
    if figures["prompt_tokens_per_s"] is not None:
        demand = (f"{figures[f'{kind}_tokens_per_s']:,.0f}" for kind in ("prompt", "output"))
        facts.append(("tokens per second", "{} prompt, {} response".format(*demand)))
    if figures["shared_blocks"] is not None:
        facts.append(("shared prefix blocks", f"{figures['shared_blocks']:.0%} were seen before"))
    return facts
