"""Readers of recordings: what each layout becomes, and how damage is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.engine import PresetSource
from parsim.errors import UserError
from parsim.validate.calibration.card import find_card
from parsim.validate.recordings.measured import read_measured

AsFolder = Callable[[pl.DataFrame, Path], Path]


def test_folder_layout_aligns_the_clocks_and_reads_the_engine(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    measured = read_measured(as_folder(served, tmp_path / "run"))
    assert measured.engine == {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "num_gpu_blocks": 1500,
        "block_size": 16,
        "enable_prefix_caching": True,
        "async_scheduling": False,
    }
    assert find_card(measured) == PresetSource(
        model="llama-3.1-8b", gpu="rtx-4090", gpu_memory_utilization=0.9
    )
    for column in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s"):
        expected = served[column] - served["arrival_s"][0]
        # 1.7e9 s leaves a double a resolution of 2.4e-7 s
        np.testing.assert_allclose(measured.requests[column], expected, atol=1e-5)


def test_bench_result_rebuilds_times_and_drops_failures(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = {
        "model_id": "m",
        "start_times": [100.0, 101.0, 102.0],
        "input_lens": [10, 20, 30],
        "output_lens": [3, 0, 1],
        "ttfts": [0.5, 0.0, 0.25],
        "itls": [[0.1, 0.2], [], []],
    }
    path.write_text(json.dumps(result))
    measured = read_measured(path)
    assert measured.requests.select("request_id", "arrival_s", "first_token_s", "finish_s").rows() == [
        ("0", 0.0, 0.5, pytest.approx(0.8)),
        ("2", 2.0, 2.25, 2.25),
    ]
    assert measured.notes == ("1 of 3 requests failed and were left out",)
    del result["start_times"]
    path.write_text(json.dumps(result))
    with pytest.raises(UserError, match=r"start_times.*--save-detailed"):
        read_measured(path)


def test_own_tables_round_trip(served: pl.DataFrame, tmp_path: Path) -> None:
    for name, write in (
        ("a.parquet", served.write_parquet),
        ("a.csv", served.write_csv),
        ("a.jsonl", served.write_ndjson),
    ):
        write(tmp_path / name)
        read = read_measured(tmp_path / name).requests
        np.testing.assert_allclose(read["finish_s"], served["finish_s"] - served["arrival_s"][0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"finish_s": 0.0}, "row 2.*arrival <= first token <= finish"),
        ({"prompt_tokens": 0}, "row 2.*lengths be whole numbers of at least 1"),
        ({"output_tokens": 10.5}, "row 2.*whole numbers"),
        ({"first_token_s": float("nan")}, "line 2: NaN is no number"),
    ],
)
def test_impossible_rows_are_named(tmp_path: Path, served: pl.DataFrame, change: dict, message: str) -> None:
    rows = served.head(3).to_dicts()
    rows[1] |= change
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message):
        read_measured(path)


def test_a_row_without_arrival_among_others_is_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    folder = as_folder(served, tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    del rows[4]["arrival_time"]
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="row 5: no field 'arrival_time'"):
        read_measured(folder)


def test_a_recording_without_duration_is_refused(tmp_path: Path, served: pl.DataFrame) -> None:
    times = ("arrival_s", "first_token_s", "finish_s")
    served.with_columns(pl.lit(5.0).alias(name) for name in times).write_parquet(tmp_path / "same.parquet")
    with pytest.raises(UserError, match="all times are equal"):
        read_measured(tmp_path / "same.parquet")


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_measured(tmp_path / "nothing")
    with pytest.raises(UserError, match="neither"):
        read_measured(tmp_path)
    (tmp_path / "x.jsonl").write_text('{"request_id": "a"}\n{"request')
    with pytest.raises(UserError, match="line 2"):
        read_measured(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("lengths", "digest", "note"),
    [(None, None, "is not beside"), (1, None, "other prompt lengths"), (0, "0" * 64, "hash differs")],
)
def test_another_workload_is_not_used(
    served: pl.DataFrame,
    tmp_path: Path,
    as_folder: AsFolder,
    lengths: int | None,
    digest: str | None,
    note: str,
) -> None:
    folder = as_folder(served, tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text()) | {
        "dataset_path": "w.jsonl",
        "dataset_hash": digest,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    if lengths is not None:
        rows = [{"input_tok_ids": [7] * (tokens + lengths)} for tokens in served["prompt_tokens"]]
        (folder / "w.jsonl").write_text("\n".join(map(json.dumps, rows)))
    measured = read_measured(folder)
    assert any(note in found for found in measured.notes)
    assert "shared_blocks" not in measured.requests.columns


@pytest.mark.parametrize(
    "ids", ["x" * 20, 20, [None] * 20, [[1]] * 20, ["a"] * 20, {"a": 1}, [1.5] * 20], ids=repr
)
def test_a_workload_without_token_ids_is_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder, ids: object
) -> None:
    folder = as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(json.dumps({"dataset_path": "w.jsonl"}))
    (folder / "w.jsonl").write_text(
        json.dumps({"input_tok_ids": [1]}) + "\n" + json.dumps({"input_tok_ids": ids})
    )
    with pytest.raises(UserError, match=r"w\.jsonl: line 2: input_tok_ids must be a list"):
        read_measured(folder)


@pytest.mark.parametrize("content", [b"hello", b"\xff\xfe", b"[1]", b"[" * 100_000, b"1" * 5000])
def test_a_workload_that_is_no_json_lines_is_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder, content: bytes
) -> None:
    folder = as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(json.dumps({"dataset_path": "w.jsonl"}))
    (folder / "w.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"w\.jsonl: line 1: "):
        read_measured(folder)


@pytest.mark.parametrize("name", [None, 3, "", "..", "/", "a\0b", "x" * 5000])
def test_a_workload_by_no_name_of_a_file_is_not_there(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder, name: object
) -> None:
    folder = as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(json.dumps({"dataset_path": name}))
    assert any("is not beside the recording" in note for note in read_measured(folder).notes)


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ("", "not valid JSON"),
        ("[]", "found list"),
        ('{"kv_cache": 3}', "'kv_cache' must be an object"),
        ('{"resolved_config": {"cache_config": "x"}}', "'cache_config' must be an object"),
        ('{"hardware": [1]}', "'hardware' must be an object"),
    ],
)
def test_a_damaged_meta_is_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder, meta: str, said: str
) -> None:
    folder = as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(meta)
    with pytest.raises(UserError, match=f"meta.json.*{said}"):
        read_measured(folder)


@pytest.mark.parametrize(
    "field", ["input_toks", "queued_ts", "arrival_time", "scheduled_ts", "last_token_ts"]
)
@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, True, float("nan"), 1e300, 10**400])
def test_a_stamp_that_is_no_number_is_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder, field: str, value: object
) -> None:
    folder = as_folder(served, tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    rows[2][field] = value
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        UserError, match=f"line 3: ({field} must be a finite number|NaN is no number in JSON)"
    ):
        read_measured(folder)


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        ("output_lens", ["x", 1], "output_lens, entry 1: expected a number"),
        ("itls", [[0.1], 7], "itls, entry 2: expected a list of numbers"),
        ("ttfts", 3, "must be lists"),
    ],
)
def test_a_damaged_bench_result_is_named(tmp_path: Path, field: str, values: object, said: str) -> None:
    result = {"input_lens": [1, 2], "output_lens": [2, 3], "ttfts": [0.1, 0.2], "itls": [[0.1], [0.2]]}
    (tmp_path / "b.json").write_text(json.dumps(result | {"start_times": [0, 1]} | {field: values}))
    with pytest.raises(UserError, match=said):
        read_measured(tmp_path / "b.json")
