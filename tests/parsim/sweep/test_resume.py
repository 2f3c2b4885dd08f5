"""A sweep that is interrupted keeps what it finished, resumes, and ends with the same bytes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from parsim.report.build import page
from parsim.sweep import execute
from parsim.sweep.results import Results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

FIELDS = {
    "name": "resume",
    "trace": {"bundled": True, "requests": 150},
    "set": {"max_num_seqs": 8},
    "policies": ["fcfs", "pars", "oracle"],
    "loads": [0.5, 1, 2],
    "seeds": [0, 1],
    "studies": ["timeline", "search"],
    "trials": 4,
}
TABLES = ("results", "groups", "requests", "series")


def digests(folder: Path) -> dict[str, str]:
    names = [*(f"{table}.parquet" for table in TABLES), "choice.json", "facts.json", "sweep.yaml"]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.mark.deep
def test_an_interrupted_sweep_resumes_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, quiet = parse_spec(FIELDS, "x"), Console(quiet=True)
    run_sweep(spec, tmp_path / "whole", quiet, jobs=1)

    real, ran = execute.Job.run, []

    def stopping(job: execute.Job) -> object:
        if len(ran) == 7:
            raise KeyboardInterrupt
        ran.append(job.key)
        return real(job)

    monkeypatch.setattr(execute.Job, "run", stopping)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, tmp_path / "halves", quiet, jobs=1)
    kept = {path.stem for path in (tmp_path / "halves" / "points").glob("*.json")}
    assert kept == set(ran) and len(kept) == 7
    assert not (tmp_path / "halves" / "results.parquet").exists()

    again: list[str] = []

    def counting(job: execute.Job) -> object:
        again.append(job.key)
        return real(job)

    monkeypatch.setattr(execute.Job, "run", counting)
    run_sweep(spec, tmp_path / "halves", quiet, jobs=1)
    assert not kept & set(again)
    assert digests(tmp_path / "halves") == digests(tmp_path / "whole")

    again.clear()
    run_sweep(spec, tmp_path / "halves", quiet, jobs=1)
    assert again == []
    run_sweep(spec, tmp_path / "halves", quiet, jobs=1, fresh=True)
    assert len(again) == len(kept | set(again))
    assert digests(tmp_path / "halves") == digests(tmp_path / "whole")


@pytest.mark.deep
def test_processes_give_the_same_bytes_as_one(tmp_path: Path) -> None:
    fields = {**FIELDS, "studies": [], "loads": [1]}
    for jobs in (1, 2):
        run_sweep(parse_spec(fields, "x"), tmp_path / str(jobs), Console(quiet=True), jobs=jobs)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


@pytest.mark.deep
def test_ctrl_c_is_one_line_and_keeps_what_is_finished(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parsim", "sweep", "--out", str(tmp_path), "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list((tmp_path / "points").glob("*.json"))) < 5:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.strip()][-1].startswith("interrupted: ")
    assert len(list((tmp_path / "points").glob("*.json"))) >= 5
    assert not (tmp_path / "report.html").exists()
    assert not list((tmp_path / "points").glob(".*"))


@pytest.mark.deep
def test_the_grid_is_published_before_the_studies_run_and_only_then(tmp_path: Path) -> None:
    spec, quiet = parse_spec(FIELDS | {"studies": ["guard", "search"]}, "x"), Console(quiet=True)
    first: list[Results] = []
    whole = run_sweep(spec, tmp_path, quiet, jobs=1, publish=first.append)
    assert [sorted(set(results.results["study"])) for results in first] == [["main"]]
    assert first[0].facts["pending"] == ["guard", "search"]
    early = page(first[0])
    assert "First answer" in early and "max_num_seqs" in early and 'http-equiv="refresh"' in early
    assert "pending" not in whole.facts
    late = page(whole)
    assert "First answer" not in late and "http-equiv" not in late
    grid = whole.results.filter(whole.results["study"] == "main")
    assert first[0].results.equals(grid.select(first[0].results.columns))
    run_sweep(spec, tmp_path, quiet, jobs=1, publish=first.append)
    assert len(first) == 1
