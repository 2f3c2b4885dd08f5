"""Another team's log in a sweep: by options, and by the sweep file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from rich.console import Console

from parsim.errors import UserError
from parsim.report.build import write_report
from parsim.sweep.options import apply_options
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec
from parsim.sweep.workload import load_trace
from parsim.traces.reading import Reading

LOG = "received_at,who,route,asked,said\n" + "".join(
    f"2026-03-01T09:00:{i // 2:02d}.{50 * (i % 2):02d}+01:00,team-{i % 3},/v1/chat,{50 + i},{10 + i % 7}\n"
    for i in range(40)
)
COLUMNS = {"prompt_tokens": "asked", "output_tokens": "said"}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "access.csv.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    return path


def test_options_and_sweep_file_say_the_same(log):
    by_options = apply_options(None, trace=str(log), reading=Reading(column=COLUMNS))
    by_file = parse_spec({"trace": {"file": str(log), "column": COLUMNS}}, "s.yaml")
    traces = [load_trace(spec.trace, 0) for spec in (by_options, by_file)]
    assert traces[0].frame.equals(traces[1].frame)
    assert traces[0].frame["arrival_s"].to_list() == pytest.approx([i / 2 for i in range(40)])
    over = apply_options(None, trace=str(log), reading=Reading(column=COLUMNS, time_unit="ms"))
    assert over.trace.time_unit == "ms"


def test_a_word_on_reading_needs_a_file(log):
    for trace in ({"bundled": True, "column": COLUMNS}, {"file": str(log), "column": {"outputs": "said"}}):
        with pytest.raises(UserError):
            parse_spec({"trace": trace}, "s.yaml")


def test_a_newcomer_s_log_becomes_a_report_in_one_command(log, tmp_path):
    spec = apply_options(
        None, trace=str(log), reading=Reading(column=COLUMNS), policies="fcfs,oracle", loads="1", seeds="0"
    )
    spec = spec.model_copy(update={"studies": ("map",), "trials": 0})
    folder = tmp_path / "out"
    run_sweep(spec, folder, Console(quiet=True), "local", 1, fresh=True)
    page = write_report(folder)
    assert "arrival_s = received_at (calendar times)" in page.read_text(encoding="utf-8")
