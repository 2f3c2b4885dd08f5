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
    settings,
)
from parsim.sweep.results import Results, read_results

RELOAD_S = 10
"""A first page is read again so often until the whole one has taken its place."""


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
        settings.section(results),
        payers.section(results),
        regime.section(results),
        recommend.section(results),
        pressure.section(results),
        pressure.timeline(results),
        ranking.section(results),
        guard.section(results),
        assumptions.section(results),
    ]
    pending = facts.get("pending")
    return render_page(
        f"Will length-ranked scheduling help? {facts['trace']['name']} on {facts['engine']['name']}",
        [s for s in sections if s is not None],
        subtitle=first_answer(pending) if pending else "",
        reload_s=RELOAD_S if pending else None,
        footer="Simulated, not measured, unless a section says otherwise.",
    )


def first_answer(pending: list[str]) -> str:
    """What a page says that is written before the studies have run."""
    return (
        "First answer, from the grid of policies, loads and seeds alone: nothing is recommended before it was tried. "
        f"The studies ({', '.join(pending)}) and the trial of candidates are run next; this page is then replaced, and "
        "reads itself again until it is. If the sweep was stopped, the same "
        "command goes on."
    )
