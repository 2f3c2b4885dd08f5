"""Recordings: readers, the fit through the simulator, and the two real GPU runs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from parsim.engine import EngineConfig, StepTime
from traces.errors import UserError
from validate.comparison import Pair, errors
from validate.fit import TERMS, fit_step_time, split
from validate.measured import read_measured
from validate.recording import calibrate, find_card, predict, unfitted
from validate.replay import Load, replay

TRUE = StepTime(
    base_s=0.012, prefill_token_s=8e-5, decode_seq_s=3e-5, kv_token_s=1.5e-7, attention_pair_s=5e-10
)
ENGINE = EngineConfig(num_gpu_blocks=1500, max_num_seqs=32, async_scheduling=False, step_time=TRUE)


@pytest.fixture(scope="module")
def served() -> pl.DataFrame:
    """120 requests as an engine with the step time TRUE serves them, at a load where a queue forms."""
    rng = np.random.default_rng(5)
    n = 120
    load = Load(
        [f"r{i}" for i in range(n)],
        np.cumsum(rng.exponential(0.12, n)).tolist(),
        rng.integers(20, 900, n).tolist(),
        rng.integers(5, 300, n).tolist(),
    )
    return replay(load, ENGINE)


@pytest.fixture(scope="module")
def short_of_memory(served: pl.DataFrame) -> pl.DataFrame:
    """The same requests where 500 blocks are all there is, and most of the time full."""
    return replay(Load.of(served), ENGINE.model_copy(update={"num_gpu_blocks": 500}))


def _as_folder(served: pl.DataFrame, folder: Path) -> Path:
    folder.mkdir()
    rows = [
        {
            "request_id": r["request_id"],
            "input_toks": r["prompt_tokens"],
            "output_toks": r["output_tokens"],
            "arrival_time": 1.7e9 + r["arrival_s"],
            "queued_ts": 500.0 + r["arrival_s"] + (0.02 if i else 0.0),
            "scheduled_ts": 500.0 + r["first_scheduled_s"],
            "first_token_ts": 500.0 + r["first_token_s"],
            "last_token_ts": 500.0 + r["finish_s"],
        }
        for i, r in enumerate(served.iter_rows(named=True))
    ]
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    meta = {
        "model": "meta-llama/Llama-3.1-8B",
        "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": None},
        "kv_cache": {"num_gpu_blocks": 1500, "block_size": 16, "enable_prefix_caching": True},
        "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
        "resolved_config": {"scheduler_config": {"async_scheduling": False}},
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_folder_layout_aligns_the_clocks_and_reads_the_engine(served: pl.DataFrame, tmp_path: Path) -> None:
    measured = read_measured(_as_folder(served, tmp_path / "run"))
    assert measured.engine == {
        "max_num_seqs": 32,
        "max_num_batched_tokens": 2048,
        "num_gpu_blocks": 1500,
        "block_size": 16,
        "enable_prefix_caching": True,
        "async_scheduling": False,
    }
    assert find_card(measured) == ("llama-3.1-8b", "rtx-4090")
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
        ({"first_token_s": float("nan")}, "row 2.*finite"),
    ],
)
def test_impossible_rows_are_named(tmp_path: Path, served: pl.DataFrame, change: dict, message: str) -> None:
    rows = served.head(3).to_dicts()
    rows[1] |= change
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message):
        read_measured(path)


def test_a_row_without_arrival_among_others_is_named(served: pl.DataFrame, tmp_path: Path) -> None:
    folder = _as_folder(served, tmp_path / "run")
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


def test_split_takes_one_of_each_pair() -> None:
    chosen = split(301, 0.5, seed=4)
    assert chosen[:300].reshape(150, 2).sum(axis=1).tolist() == [1] * 150
    assert (split(301, 0.5, 4) == chosen).all()
    assert not (split(301, 0.5, 5) == chosen).all()
    assert split(300, 0.2, 0).sum() == 60
    assert split(7, 1.0, 0).all()


def test_fit_recovers_a_known_engine(served: pl.DataFrame) -> None:
    fitted = split(served.height, 0.5, 0)
    start = TRUE.model_copy(update={"base_s": 0.02, "prefill_token_s": 5e-5, "kv_token_s": 3e-7})
    fit = fit_step_time(served, ENGINE, fitted=fitted, start=start)
    made = replay(Load.of(served), ENGINE.model_copy(update={"step_time": fit.step_time}))
    table = errors([Pair("fcfs", "x", [unfitted(served, fitted)], [unfitted(made, fitted)])])
    assert table["error"].abs().max() < 0.02
    assert fit.step_time.base_s == pytest.approx(TRUE.base_s, rel=0.1)
    assert fit.step_time.prefill_token_s == pytest.approx(TRUE.prefill_token_s, rel=0.1)
    assert set(fit.relative_error) == set(TERMS)
    # the two terms that make up most of the time are known better than the smallest one
    assert fit.relative_error["base_s"] < fit.relative_error["attention_pair_s"]


def test_unknown_blocks_are_inferred_where_memory_never_binds(served: pl.DataFrame, tmp_path: Path) -> None:
    folder = _as_folder(served, tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["kv_cache"]["num_gpu_blocks"]
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    calibrated = calibrate(measured, seed=0, card=find_card(measured))
    assert any("any number above that gives the same prediction" in note for note in calibrated.notes)
    made = predict(measured, calibrated.config)
    table = errors([Pair("fcfs", "x", [measured.requests], [made])])
    assert table.filter(pl.col("metric").str.contains("e2el"))["error"].abs().max() < 0.03


def test_unknown_blocks_are_fitted_where_memory_is_short(
    short_of_memory: pl.DataFrame, tmp_path: Path
) -> None:
    assert short_of_memory["preemptions"].sum() > 10
    folder = _as_folder(short_of_memory, tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["kv_cache"]["num_gpu_blocks"]
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    calibrated = calibrate(measured, seed=0)
    assert any("memory was short" in note for note in calibrated.notes)
    assert calibrated.config.num_gpu_blocks == pytest.approx(500, rel=0.05)
    assert calibrated.fit
    made = predict(measured, calibrated.config, calibrated.fit.ready_s)
    table = errors([Pair("fcfs", "x", [measured.requests], [made])])
    chosen = table.filter(pl.col("metric").str.contains("mean_ttft|mean_e2el|p90_e2el"))
    assert chosen["error"].abs().max() < 0.03


def test_cold_start_is_fitted_apart_from_the_step_time(served: pl.DataFrame) -> None:
    cold = replay(Load.of(served), ENGINE, ready_s=0.4)
    assert cold["arrival_s"].equals(served["arrival_s"])
    assert cold["first_scheduled_s"].min() == 0.4
    fitted = split(served.height, 0.5, 0)
    fit = fit_step_time(cold, ENGINE, fitted=fitted, start=TRUE)
    assert fit.ready_s == pytest.approx(0.4, rel=0.1)
    assert fit.step_time.base_s == pytest.approx(TRUE.base_s, rel=0.1)
    assert fit_step_time(served, ENGINE, fitted=fitted, start=TRUE).ready_s < 0.2


def test_prompts_beside_a_recording_are_shared_in_the_prefix_cache(
    served: pl.DataFrame, tmp_path: Path
) -> None:
    folder = _as_folder(served, tmp_path / "run")
    rng = np.random.default_rng(0)
    common = rng.integers(0, 1000, 160).tolist()
    lines = []
    for tokens in served["prompt_tokens"]:
        own = rng.integers(1000, 30_000, tokens).tolist()
        lines.append(json.dumps({"input_tok_ids": (common + own[160:]) if tokens > 160 else own}))
    workload = tmp_path / "w.jsonl"
    workload.write_text("\n".join(lines))
    meta = json.loads((folder / "meta.json").read_text())
    meta |= {
        "dataset_path": "elsewhere/w.jsonl",
        "dataset_hash": hashlib.sha256(workload.read_bytes()).hexdigest(),
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    long = int((served["prompt_tokens"] > 160).sum())
    assert any(f"w.jsonl: {long} of 120 share" in note for note in measured.notes)
    assert measured.requests["shared_blocks"].list.len().to_list() == [
        10 if tokens > 160 else 0 for tokens in served["prompt_tokens"]
    ]
    shared, alone = predict(measured, ENGINE), replay(Load.of(served), ENGINE)
    waited = [(made["first_token_s"] - made["arrival_s"]).sum() for made in (shared, alone)]
    assert waited[0] < 0.9 * waited[1]
    without = ENGINE.model_copy(update={"enable_prefix_caching": False})
    assert predict(measured, without)["finish_s"].to_list() == pytest.approx(
        (replay(Load.of(served), without)["finish_s"] - served["arrival_s"][0]).to_list(), abs=1e-4
    )
    with pytest.raises(UserError, match="change block_size"):
        predict(measured, ENGINE.model_copy(update={"block_size": 24}))


@pytest.mark.parametrize(
    ("lengths", "digest", "note"),
    [(None, None, "is not beside"), (1, None, "other prompt lengths"), (0, "0" * 64, "hash differs")],
)
def test_another_workload_is_not_used(
    served: pl.DataFrame, tmp_path: Path, lengths: int | None, digest: str | None, note: str
) -> None:
    folder = _as_folder(served, tmp_path / "run")
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
def test_a_workload_without_token_ids_is_named(served: pl.DataFrame, tmp_path: Path, ids: object) -> None:
    folder = _as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(json.dumps({"dataset_path": "w.jsonl"}))
    (folder / "w.jsonl").write_text(
        json.dumps({"input_tok_ids": [1]}) + "\n" + json.dumps({"input_tok_ids": ids})
    )
    with pytest.raises(UserError, match=r"w\.jsonl: row 2: input_tok_ids must be a list"):
        read_measured(folder)


@pytest.mark.parametrize("content", [b"hello", b"\xff\xfe", b"[1]", b"[" * 100_000, b"1" * 5000])
def test_a_workload_that_is_no_json_lines_is_named(
    served: pl.DataFrame, tmp_path: Path, content: bytes
) -> None:
    folder = _as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(json.dumps({"dataset_path": "w.jsonl"}))
    (folder / "w.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"w\.jsonl: line 1: "):
        read_measured(folder)


@pytest.mark.parametrize("name", [None, 3, "", "..", "/", "a\0b", "x" * 5000])
def test_a_workload_by_no_name_of_a_file_is_not_there(
    served: pl.DataFrame, tmp_path: Path, name: object
) -> None:
    folder = _as_folder(served, tmp_path / "run")
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
def test_a_damaged_meta_is_named(served: pl.DataFrame, tmp_path: Path, meta: str, said: str) -> None:
    folder = _as_folder(served, tmp_path / "run")
    (folder / "meta.json").write_text(meta)
    with pytest.raises(UserError, match=f"meta.json.*{said}"):
        read_measured(folder)


def test_settings_that_are_none_of_an_engine_are_named(served: pl.DataFrame, tmp_path: Path) -> None:
    folder = _as_folder(served, tmp_path / "run")
    with pytest.raises(UserError, match=r"--set: num_gpu_block: .*did you mean 'num_gpu_blocks'"):
        calibrate(read_measured(folder), overrides={"num_gpu_block": 3})
    (folder / "meta.json").write_text(json.dumps({"kv_cache": {"block_size": "x"}}))
    with pytest.raises(UserError, match="recording run: block_size"):
        calibrate(read_measured(folder))


@pytest.mark.parametrize(
    "field", ["input_toks", "queued_ts", "arrival_time", "scheduled_ts", "last_token_ts"]
)
@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, True, float("nan"), 1e300, 10**400])
def test_a_stamp_that_is_no_number_is_named(
    served: pl.DataFrame, tmp_path: Path, field: str, value: object
) -> None:
    folder = _as_folder(served, tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    rows[2][field] = value
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=f"row 3: {field} must be a finite number"):
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "-1"], "--seed"),
        (["--seed", str(2**32)], "--seed"),
        (["--out", "taken"], "taken.*cannot write there"),
    ],
)
def test_a_wrong_option_is_found_before_the_fit(
    served: pl.DataFrame,
    tmp_path: Path,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from validate.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("validate.recording.calibrate", lambda *_, **__: pytest.fail("fitted"))
    (tmp_path / "taken").write_text("a file")
    served.write_parquet(tmp_path / "served.parquet")
    result = CliRunner().invoke(app, ["recording", "served.parquet", *arguments])
    assert isinstance(result.exception, UserError) or result.exit_code == 2
    assert re.search(said, f"{result.output} {result.exception}")


def test_too_little_to_fit(served: pl.DataFrame, tmp_path: Path) -> None:
    served.head(30).write_parquet(tmp_path / "few.parquet")
    measured = read_measured(tmp_path / "few.parquet")
    with pytest.raises(UserError, match="too few"):
        calibrate(measured)
    with pytest.raises(UserError, match="--fit-share"):
        calibrate(measured, share=1.5)


@pytest.mark.parametrize(
    ("name", "whole", "unseen"),
    [("RTX4090_Llama-3.1-8B", 0.015, 0.025), ("RTXPRO6000_Llama-3.1-8B", 0.01, 0.015)],
)
def test_real_gpu_recordings(shared: Path, tmp_path: Path, name: str, whole: float, unseen: float) -> None:
    """Golden: half of 300 requests that vLLM 0.19 served on a real card predicts all of them, and the other half."""
    from validate.cli import app

    result = CliRunner().invoke(
        app, ["recording", str(shared / "data/recordings" / name), "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    table = pl.read_parquet(tmp_path / "errors.parquet").filter(
        pl.col("metric").str.contains("ttft|tpot|e2el")
    )
    worst = {
        row["label"]: row["error"]
        for row in table.group_by("label").agg(pl.col("error").abs().max()).to_dicts()
    }
    assert worst["all requests"] < whole
    assert worst["not fitted"] < unseen
    assert worst["datasheet preset"] > 0.1
    page = (tmp_path / "validation.html").read_text()
    assert "Reading the weights once takes" in page
    from parsim.engine import load_engine

    assert load_engine(str(tmp_path / "engine.yaml")).step_time.source == "fitted"
