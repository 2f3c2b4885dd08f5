"""What is written appears whole or not at all, also where the disk is full."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from parsim.files import check_target, replacing
from parsim.traces import Trace, UserError, write_trace

FRAME = {
    "request_id": [f"a-long-name-{i * 7919}" for i in range(20_000)],
    "arrival_s": [i * 0.37 for i in range(20_000)],
    "prompt_tokens": [1 + i * 31 % 977 for i in range(20_000)],
    "output_tokens": [1 + i * 17 % 613 for i in range(20_000)],
}


def limited(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python under a limit of 8 KiB a file, which refuses as a full disk does."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
    command = [sys.executable, "-c", limit + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path, ending):
    source, out = tmp_path / "source.parquet", tmp_path / f"out.{ending}"
    write_trace(Trace(pl.DataFrame(FRAME)), source)
    out.write_text("before")
    code = "import runpy, sys; sys.argv[0] = 'traces'; runpy.run_module('traces', run_name='__main__')"
    done = limited(code, "convert", source, out)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {out}: cannot be written (")
    assert done.stderr.count("\n") == 1
    assert out.read_text() == "before"
    assert {entry.name for entry in tmp_path.iterdir()} == {source.name, out.name}


def test_an_output_that_cannot_be_printed_to_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "traces", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "error: output: No space left on device\n"


def test_another_error_stays_itself_and_nothing_appears(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "x"):
        _ = 1 / 0
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_became_a_folder_meanwhile_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be written"), replacing(tmp_path / "x"):
        (tmp_path / "x").mkdir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_a_target_is_checked_before_the_work(tmp_path):
    check_target(tmp_path / "new" / "deep" / "x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="is a folder"):
        check_target(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write there"):
        check_target(tmp_path / "file" / "x")
