"""What is recorded while serving is a trace, whole up to the last second, whoever kills the process."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import UserError
from parsim.scheduler import recorder as recorder_module
from parsim.scheduler.recorder import TraceRecorder
from parsim.traces import read_trace


def row(number: int, **more: object) -> dict[str, object]:
    return {
        "request_id": f"r{number}",
        "arrival_s": 1.7e9 + number * 0.25,
        "prompt_tokens": 130 + number,
        "output_tokens": 1 + number,
        "stop": "stop",
        "finish_s": 1.7e9 + number + 1.0,
        "score.online": None if number == 0 else number / 2,
        "client_id": None,
        "prefix_hashes": [7, number],
        "hash_block_size": 64,
        **more,
    }


def test_a_folder_of_several_files_and_runs_is_one_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "FILE_BYTES", 400)
    for run in range(2):
        recorder = TraceRecorder(tmp_path / "served", 16)
        for number in range(6):
            recorder.write(row(6 * run + number, **({"stop": "abort"} if number == 2 else {})))
            recorder._flush()
        recorder.close()
    assert len(list((tmp_path / "served").iterdir())) > 4
    trace = read_trace(tmp_path / "served")
    assert trace.frame["request_id"].to_list() == [f"r{number}" for number in range(12)]
    assert trace.frame["arrival_s"].to_list() == [number * 0.25 for number in range(12)]
    assert trace.frame["score.online"].to_list() == [3.0, *[number / 2 for number in range(1, 12)]]
    assert trace.hash_block_size == 64 and trace.frame["prefix_hashes"][3].to_list() == [7, 3]
    assert "2 of 12 requests were aborted" in trace.metadata["notes"]
    assert "score.online: 1 of 12 requests got none and stand at the median" in trace.metadata["notes"]
    assert trace.name == "served"


def test_one_file_is_told_from_its_content(tmp_path: Path) -> None:
    recorder = TraceRecorder(tmp_path, 16)
    for number in range(3):
        recorder.write(row(number, client_id="a"))
    recorder.close()
    (file,) = tmp_path.iterdir()
    trace = read_trace(file)
    assert trace.metadata["format"] == "recorded" and trace.frame["client_id"].to_list() == ["a"] * 3


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"folder without files trace-\*\.jsonl"):
        read_trace(tmp_path)


def test_a_bad_row_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    for run, tokens in enumerate((5, -1)):
        recorder = TraceRecorder(tmp_path, 16)
        recorder._run = f"run{run}"
        recorder._next_file()
        recorder.write(row(2 * run))
        recorder.write(row(2 * run + 1, output_tokens=tokens))
        recorder.close()
    with pytest.raises(UserError, match=r"trace-run1-00002\.jsonl line 2: output_tokens"):
        read_trace(tmp_path)


def test_old_files_of_a_run_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "FILE_BYTES", 1)
    monkeypatch.setattr(recorder_module, "FILES", 3)
    recorder = TraceRecorder(tmp_path, 16)
    for number in range(10):
        recorder.write(row(number))
        recorder._flush()
    recorder.close()
    assert len(list(tmp_path.iterdir())) == 3


def test_equal_prefixes_have_equal_hashes_in_one_run_and_other_ones_in_the_next(tmp_path: Path) -> None:
    one, two = TraceRecorder(tmp_path / "a", 16), TraceRecorder(tmp_path / "b", 16)
    prompt, branch = list(range(200)), [*range(100), *range(900, 1000)]
    first = one.prefix_hashes(prompt, [], 16)
    assert len(first) == 3  # 64 tokens each; the rest fills no block
    assert (
        one.prefix_hashes(branch, [], 16)[0] == first[0] and one.prefix_hashes(branch, [], 16)[1] != first[1]
    )
    assert set(first).isdisjoint(two.prefix_hashes(prompt, [], 16))
    chained = [bytes([number]) * 32 for number in range(12)]
    assert len(one.prefix_hashes(prompt, chained, 16)) == 3
    assert all(0 <= number < 2**56 for number in first)
    one.close()
    two.close()


def test_a_disk_that_refuses_is_counted_and_serving_goes_on(tmp_path: Path) -> None:
    recorder = TraceRecorder(tmp_path, 16)
    assert recorder._file is not None
    os.close(recorder._file)  # every write fails from now on
    recorder.write(row(1))
    recorder._flush()
    recorder.write(row(2))
    recorder._flush()
    assert (recorder.lines, recorder.lost) == (0, 2)
    recorder._file = None
    recorder.write(row(3))  # and it takes them again
    recorder.close()
    assert (recorder.lines, recorder.lost) == (1, 2)
    assert read_trace(tmp_path).frame["request_id"].to_list() == ["r3"]
    with pytest.raises(ValueError, match="record"):
        TraceRecorder("/proc/nowhere", 16)


def test_what_is_older_than_a_second_survives_kill_9(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from parsim.scheduler.recorder import TraceRecorder\n"
        "recorder = TraceRecorder(sys.argv[1], 16)\n"
        "number = 0\n"
        "while True:\n"
        "    recorder.write({'request_id': f'r{number}', 'arrival_s': time.time(), 'prompt_tokens': 9,"
        " 'output_tokens': 9, 'stop': 'stop', 'finish_s': time.time(), 'prefix_hashes': None})\n"
        "    print(number, flush=True)\n"
        "    number += 1\n"
        "    time.sleep(0.002)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: list[tuple[float, int]] = []
    while len(said) < 900:
        said.append((time.monotonic(), int(process.stdout.readline())))
    killed = time.monotonic()
    process.send_signal(signal.SIGKILL)
    process.wait()
    old = [number for when, number in said if when < killed - 1.5]
    trace = read_trace(tmp_path)
    assert trace.frame.height > len(old) > 50
    assert trace.frame["request_id"].to_list() == [f"r{number}" for number in range(trace.frame.height)]


@pytest.mark.parametrize("room", [0, 1, 100, 250, 700, 10_000])
def test_a_disk_that_fills_up_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    recorder = TraceRecorder(tmp_path, 16)
    really, left = os.write, [room]

    def write(file: int, text: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = really(file, text[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(recorder_module.os, "write", write)
    for number in range(6):
        recorder.write(row(number))
        recorder._flush()
    left[0] = 10_000
    recorder.write(row(6))
    recorder.close()
    trace = read_trace(tmp_path)
    assert len(trace) == recorder.lines == 7 - recorder.lost
    assert trace.frame["request_id"].to_list()[-1] == "r6"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2_000), st.sampled_from([b"", b"\0" * 50]))
def test_a_file_cut_anywhere_is_read_to_its_last_whole_line(cut: int, after: bytes) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(2):
            recorder = TraceRecorder(folder, 16)
            for number in range(5):
                recorder.write(row(number, arrival_s=1.7e9 + secrets.randbelow(10**9)))
            recorder.close()
        first = sorted(folder.iterdir())[0]
        kept = first.read_bytes()[:cut]
        first.write_bytes(kept + after)
        trace = read_trace(folder)
        whole = kept.count(b"\n") + kept.endswith(b"}")
        assert len(trace) == 5 + whole
        assert trace.frame["request_id"].n_unique() == len(trace)


def test_ids_that_engines_give_again_after_a_restart_are_told_apart(tmp_path: Path) -> None:
    for run in range(3):
        recorder = TraceRecorder(tmp_path, 16)
        for number in range(4):
            recorder.write(row(number, arrival_s=1.7e9 + 100 * run + number))
        recorder.close()
    trace = read_trace(tmp_path)
    names = [f"r{n}{end}" for end in ("", "~2", "~3") for n in range(4)]
    assert trace.frame["request_id"].to_list() == names
    assert "8 of 12 requests had the id of an earlier one" in trace.metadata["notes"]
    (tmp_path / "trace-copy.jsonl").write_bytes(next(tmp_path.glob("trace-*-*.jsonl")).read_bytes())
    with pytest.raises(UserError, match="which an earlier row has"):
        read_trace(tmp_path)
