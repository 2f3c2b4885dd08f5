"""`report.html` from the tables of a finished sweep."""

from __future__ import annotations

from pathlib import Path

from parsim.files import replacing
from parsim.report.page import Section, render_page
from parsim.report.sections import (
    answer,
    assumptions,
    guard,
    latency,
    payers,
    pressure,
    ranking,
    recommend,
    regime,
)
from parsim.sweep.results import Results, read_results


def write_report(folder: Path, results: Results | None = None) -> Path:
    """Write `folder`/report.html and return its path.

    Raises:
        UserError: `folder` holds no finished sweep.
    """
    html = page(read_results(folder) if results is None else results)
    with replacing(folder / "report.html") as path:
        path.write_text(html, encoding="utf-8")
    return folder / "report.html"


def page(results: Results) -> str:
    """The page of a sweep."""
    facts = results.facts
    sections: list[Section | None] = [
        answer.section(results),
        latency.section(results),
        payers.section(results),
        regime.section(results),
        recommend.section(results),
        pressure.section(results),
        pressure.timeline(results),
        ranking.section(results),
        guard.section(results),
        assumptions.section(results),
    ]
    return render_page(
        f"Will length-ranked scheduling help? {facts['trace']['name']} on {facts['engine']['name']}",
        [s for s in sections if s is not None],
        footer="Written by parsim. Simulated, not measured, unless a section says otherwise.",
    )
