"""Page parts: escaping, figures, and the report command's errors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from markupsafe import Markup

from parsim.report.page import Code, Column, Prose, Section, Table, Verdict, figure, number, render_page
from parsim.report.phrases import seconds_words


def test_text_from_outside_is_escaped_everywhere() -> None:
    bad = "<script>alert(1)</script>"
    frame = pl.DataFrame({"a": [bad]})
    page = render_page(
        bad,
        [
            Section(
                bad,
                [
                    Prose([bad]),
                    Verdict("good", bad, [bad], [(bad, bad)], bad),
                    Table(frame, {"a": Column(bad)}),
                    Code(bad),
                ],
                bad,
            )
        ],
    )
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 9


def test_a_number_carries_what_it_is() -> None:
    tag = number(2.5, "2.50x", "gain", policy="p<q", load=1.0)
    assert tag == Markup(
        '<b class="num" data-number="gain" data-value="2.5" data-policy="p&lt;q" data-load="1.0">2.50x</b>'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.01234, "0.0123"),
        (1.5, "1.50"),
        (12.345, "12.3"),
        (12345.6, "12,346"),
        (float("nan"), "-"),
        (7, "7"),
    ],
)
def test_figures(value: float, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.0123, "12.3 ms"), (5.0, "5.00 s"), (600.0, "10 min")])
def test_durations(seconds: float, shown: str) -> None:
    assert seconds_words(seconds) == shown


def test_a_page_without_charts_carries_no_scripts_for_them() -> None:
    assert len(render_page("t", [Section("h", [Prose(["x"])])])) < 20_000


@pytest.mark.parametrize("content", [None, "results.parquet"])
def test_report_of_a_folder_without_a_sweep_is_one_line(
    tmp_path: Path, content: str | None, called: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    if content:
        (tmp_path / content).write_text("not parquet")
    done = called("report", str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and len(done.stderr.strip().splitlines()) == 1
