"""The report of policies on a real engine: page, tables, and what the runs left as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from parsim.files import replacing
from parsim.report.page import Section, Verdict, render_page
from parsim.validate.report.comparison import Order, Pair, errors, order, parts, scatter, speedups
from parsim.validate.report.page import (
    HEADLINE,
    error_section,
    gain_section,
    metric_section,
    notes_section,
    part_section,
    scatter_section,
    step_section,
    verdict,
)

CLOCKS = {"wall": "on the wall clock", "cpu": "on the engine's CPU clock"}
CLOCKS |= {f"{name}-steady": f"{words}, each run at its own speed" for name, words in CLOCKS.items()}


class PolicyReport:
    """Collects what was measured on each clock and writes the folder once.

    Attributes:
        errors, gains, orders, verdicts: by clock.
    """

    def __init__(self, title: str, command: str) -> None:
        self.title = title
        self.command = command
        self.sections: list[Section] = []
        self.errors: dict[str, pl.DataFrame] = {}
        self.gains: dict[str, pl.DataFrame] = {}
        self.orders: dict[str, Order] = {}
        self.verdicts: dict[str, Verdict] = {}

    def add(
        self,
        clock: str,
        pairs: Sequence[Pair],
        notes: Sequence[str],
        steps: pl.DataFrame | None = None,
        step_lead: str = "",
        trusted: bool = True,
    ) -> None:
        """One comparison; `clock` is `wall` or `cpu`, `trusted`: whether the machine left it usable."""
        words = CLOCKS.get(clock, clock)
        table, gains = errors(pairs), speedups(pairs)
        ranking = order(pairs)
        top = verdict(table, gains, ranking, self.command)
        if not trusted:
            top = Verdict(
                "neutral", f"{top.headline} The machine spoilt these runs; see the notes.", top.sentences
            )
        self.errors[clock], self.gains[clock], self.orders[clock] = table, gains, ranking
        self.verdicts[clock] = top
        labels = {pair.policy: pair.label for pair in pairs}
        self.sections.append(Section(f"Was the model right? ({words})", [top]))
        shown = table.filter(~pl.col("metric").str.contains("tpot"))
        self.sections.append(error_section(shown, f"Measured and predicted, {words}"))
        if gains.height > 1:
            self.sections.append(gain_section(gains))
        self.sections += [part_section(parts(pairs)), scatter_section(scatter(pairs), labels)]
        if steps is not None:
            self.sections.append(step_section(steps, step_lead))
        self.sections.append(notes_section(notes, f"Machine and noise, {words}"))

    def write(self, folder: Path, notes: Sequence[str], facts: dict[str, Any]) -> Path:
        """Write validation.html, errors.parquet, speedups.parquet and validation.json; return the page."""
        sections = [*self.sections, notes_section(notes)]
        sections.append(
            metric_section(
                [m for m in next(iter(self.errors.values()))["metric"].unique(maintain_order=True)]
            )
        )
        page = render_page(self.title, sections)
        tables = {
            "errors": pl.concat([t.with_columns(pl.lit(c).alias("clock")) for c, t in self.errors.items()]),
            "speedups": pl.concat(
                [t.with_columns(pl.lit(c).alias("clock")) for c, t in self.gains.items() if t.height]
                or [pl.DataFrame()]
            ),
        }
        for name, table in tables.items():
            with replacing(folder / f"{name}.parquet") as path:
                table.write_parquet(path)
        summary = {
            "verdicts": {
                c: {"headline": v.headline, "sentences": list(v.sentences)} for c, v in self.verdicts.items()
            },
            "orders": {c: {"real": o.real, "model": o.model, "same": o.same} for c, o in self.orders.items()},
            "errors": tables["errors"].to_dicts(),
            "speedups": tables["speedups"].to_dicts(),
            "notes": list(notes),
            **facts,
        }
        with replacing(folder / "validation.json") as path:
            path.write_text(json.dumps(summary, indent=1, default=str) + "\n", encoding="utf-8")
        with replacing(folder / "validation.html") as path:
            path.write_text(page, encoding="utf-8")
        return folder / "validation.html"

    def print(self, console: Any) -> None:
        """The headline metrics, the speed-ups and the verdict of each clock."""
        from rich.table import Table

        for clock, table in self.errors.items():
            shown = Table(
                "policy", *HEADLINE, title=f"{CLOCKS.get(clock, clock)}: measured / predicted (error)"
            )
            for label in table["label"].unique(maintain_order=True):
                rows = {r["metric"]: r for r in table.filter(pl.col("label") == label).iter_rows(named=True)}
                cells = [rows[m] for m in HEADLINE]
                shown.add_row(
                    label, *(f"{r['real']:,.4g} / {r['model']:,.4g} ({r['error']:+.1%})" for r in cells)
                )
            console.print(shown)
            gains = self.gains[clock]
            if gains.height > 1:
                words = ", ".join(
                    f"{r['label']} {r['real']:.2f}x / {r['model']:.2f}x ({r['error']:+.1%})"
                    for r in gains.iter_rows(named=True)
                    if r["policy"] != "fcfs"
                )
                console.print(f"speed-up over FCFS, measured / predicted: {words}", highlight=False)
            console.print(f"[bold]{self.verdicts[clock].headline}[/bold]", highlight=False)
            for sentence in self.verdicts[clock].sentences:
                console.print(sentence, highlight=False)
