"""`parsim traces` as a user runs it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from parsim.traces import read_trace

PLAIN = "request_id,arrival_s,prompt_tokens,output_tokens\n"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "traces", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def test_info_without_a_path_is_of_the_bundled_trace():
    found = run("info", "--json")
    assert found.returncode == 0
    figures = json.loads(found.stdout)
    assert (figures["name"], figures["requests"]) == ("bundled", 4095)
    assert figures["metadata"]["licence"] == "Apache-2.0"


def test_info_for_people_says_what_is_lacking(tmp_path):
    path = tmp_path / "[t].csv"
    path.write_text(PLAIN + "a,0,5,5\nb,2,7,9\n")
    shown = run("info", path).stdout
    assert "[t]: 2 requests" in shown
    assert "0.5 requests/s" in shown
    assert "lacks: no prompt text" in shown


def test_convert_keeps_provenance_and_prints_notes(tmp_path):
    source = tmp_path / "b.csv"
    source.write_text("Timestamp,Request tokens,Response tokens\n1,5,6\n2,5,0\n3,7,8\n")
    done = run("convert", source, tmp_path / "b.parquet")
    assert done.returncode == 0
    assert "note: dropped 1 of 3 requests that failed (0 tokens)" in done.stderr
    trace = read_trace(tmp_path / "b.parquet")
    assert trace.metadata["format"] == "burstgpt"
    assert len(trace) == 2


@pytest.mark.deep
def test_synthesize_and_join_are_reproducible(tmp_path):
    drawn = []
    for name in ("one", "two"):
        out = tmp_path / f"{name}.parquet"
        arguments = ("--arrivals", "gamma(rate=5, cv=2)", "--requests", 50, "--seed", 3, "--correlation", 0.5)
        assert run("synthesize", "--out", out, *arguments).returncode == 0
        drawn.append(out.read_bytes())
    assert drawn[0] == drawn[1]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(json.dumps({"prompt": "p", "prompt_tokens": 1, "len": {"A": 3}}) + "\n")
    out = tmp_path / "j.csv"
    done = run(
        "join", corpus, "--model", "A", "--arrivals", tmp_path / "one.parquet", "--requests", 3, "--out", out
    )
    assert done.returncode == 0, done.stderr
    times = read_trace(tmp_path / "one.parquet").frame["arrival_s"].head(3).to_list()
    assert read_trace(out).frame.select("arrival_s", "output_tokens").rows() == [(time, 3) for time in times]


def test_synthesize_resamples_the_lengths_of_a_trace(tmp_path):
    source = tmp_path / "t.csv"
    source.write_text(PLAIN + "a,0,5,50\nb,2,7,70\n")
    out = tmp_path / "s.csv"
    assert run("synthesize", "--lengths-from", source, "--requests", 40, "--out", out).returncode == 0
    assert set(read_trace(out).frame.select("prompt_tokens", "output_tokens").rows()) == {(5, 50), (7, 70)}


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "nowhere.csv"),
        ("convert", "{bad}", "{folder}/x.parquet"),
        ("convert", "{good}", "{folder}"),
        ("synthesize", "--requests", "0", "--out", "{folder}/x.csv"),
        ("synthesize", "--arrivals", "posson(rate=1)", "--out", "{folder}/x.csv"),
        ("join", "{good}", "--arrivals", "nowhere.csv", "--out", "{folder}/x.csv"),
        ("fetch", "azure-2023-con", "--out", "{folder}"),
    ],
)
def test_errors_are_one_line_and_exit_2(tmp_path, arguments, called):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text(PLAIN + "a,0,5,5\n")
    bad.write_text(PLAIN + "a,0,5,0\n")
    done = called("traces", *(text.format(good=good, bad=bad, folder=tmp_path) for text in arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bad.csv", "good.csv"]


def test_list_names_public_traces_and_formats():
    shown = run("list").stdout
    assert "azure-2023-conv" in shown
    assert "vllm-bench" in shown


def test_import_and_help_load_nothing_heavy():
    code = (
        "import sys, traces, parsim.cli.traces; "
        "print(sorted({'polars', 'numpy', 'scipy', 'torch', 'rich.progress'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


LOG = "at,who,route,asked,said\n" + "".join(
    f"2026-03-01T09:00:{i // 4:02d}.{25 * (i % 4):02d}+01:00,team-{i % 3},/v1/chat,{50 + i},{10 + i}\n"
    for i in range(40)
)
HOW = ("--column", "arrival_s=at", "--column", "prompt_tokens=asked", "--column", "output_tokens=said")


def test_an_access_log_of_another_team_is_read_and_said(tmp_path):
    log = tmp_path / "access.log.gz"
    log.write_bytes(gzip.compress(LOG.encode()))
    done = run("info", log, *HOW, "--json")
    assert json.loads(done.stdout)["rate_per_s"] == pytest.approx(4)
    assert done.stderr == (
        "read as: arrival_s = at (calendar times), prompt_tokens = asked, output_tokens = said, not used: who, route\n"
    )
    wrong = run("info", log, "--columns", "arrival_s=at")
    assert wrong.returncode == 2
    assert "--column" in wrong.stderr and wrong.stderr.count("\n") == 1


@pytest.mark.deep
def test_a_page_is_written(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    done = run("info", log, *HOW, "--html", "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "4 requests/s" in (tmp_path / "page.html").read_text()
    assert run("info", log, *HOW, "--out", tmp_path / "p.html").stderr.startswith("error: --out")


def test_idle_options_and_early_turns_are_named(tmp_path):
    log = tmp_path / "s.csv"
    log.write_text(
        "arrival_s,prompt_tokens,output_tokens,session_id\n0,9,500,a\n0.01,9,5,b\n0.25,9,5,a\n90.5,9,5,b\n"
    )
    command = [
        sys.executable,
        "-m",
        "parsim",
        "simulate",
        log,
        "--seed",
        "3",
        "--starvation-threshold-s",
        "9",
        "--json",
    ]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines() == [
        "note: --seed changes nothing: no scores are emulated",
        "note: --starvation-threshold-s changes nothing: the first come is served first anyway",
        "note: open loop: 1 of 2 later turns of sessions arrive before the turn before them has ended",
    ]
