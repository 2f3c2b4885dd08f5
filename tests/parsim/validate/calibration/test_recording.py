"""Recordings: the fit through the simulator, and the two real GPU runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from parsim.engine import EngineConfig, load_engine
from parsim.errors import UserError
from parsim.validate.calibration.card import find_card
from parsim.validate.calibration.fit import TERMS, Fit, fit_step_time, split
from parsim.validate.calibration.recording import Calibrated, calibrate, carry, engine_of, predict, unfitted
from parsim.validate.calibration.replay import Load, replay
from parsim.validate.recordings.measured import read_measured
from parsim.validate.report.comparison import Pair, errors

AsFolder = Callable[[pl.DataFrame, Path], Path]


@pytest.fixture(scope="module")
def short_of_memory(engine: EngineConfig, served: pl.DataFrame) -> pl.DataFrame:
    """The same requests where 500 blocks are all there is, and most of the time full."""
    return replay(Load.of(served), engine.model_copy(update={"num_gpu_blocks": 500}))


def test_split_takes_one_of_each_pair() -> None:
    chosen = split(301, 0.5, seed=4)
    assert chosen[:300].reshape(150, 2).sum(axis=1).tolist() == [1] * 150
    assert (split(301, 0.5, 4) == chosen).all()
    assert not (split(301, 0.5, 5) == chosen).all()
    assert split(300, 0.2, 0).sum() == 60
    assert split(7, 1.0, 0).all()


@pytest.mark.deep
def test_fit_recovers_a_known_engine(engine: EngineConfig, served: pl.DataFrame) -> None:
    fitted = split(served.height, 0.5, 0)
    start = engine.step_time.model_copy(update={"base_s": 0.02, "prefill_token_s": 5e-5, "kv_token_s": 3e-7})
    fit = fit_step_time(served, engine, fitted=fitted, start=start)
    made = replay(Load.of(served), engine.model_copy(update={"step_time": fit.step_time}))
    table = errors([Pair("fcfs", "x", [unfitted(served, fitted)], [unfitted(made, fitted)])])
    assert table["error"].abs().max() < 0.02
    assert fit.step_time.base_s == pytest.approx(engine.step_time.base_s, rel=0.1)
    assert fit.step_time.prefill_token_s == pytest.approx(engine.step_time.prefill_token_s, rel=0.1)
    assert set(fit.relative_error) == set(TERMS)
    # the two terms that make up most of the time are known better than the smallest one
    assert fit.relative_error["base_s"] < fit.relative_error["attention_pair_s"]


@pytest.mark.deep
def test_unknown_blocks_are_inferred_where_memory_never_binds(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    folder = as_folder(served, tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["kv_cache"]["num_gpu_blocks"]
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    calibrated = calibrate(measured, seed=0, card=find_card(measured))
    assert any("any number above that gives the same prediction" in note for note in calibrated.notes)
    made = predict(measured, calibrated.config)
    table = errors([Pair("fcfs", "x", [measured.requests], [made])])
    assert table.filter(pl.col("metric").str.contains("e2el"))["error"].abs().max() < 0.03


@pytest.mark.deep
def test_unknown_blocks_are_fitted_where_memory_is_short(
    short_of_memory: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    assert short_of_memory["preemptions"].sum() > 10
    folder = as_folder(short_of_memory, tmp_path / "run")
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


@pytest.mark.deep
def test_cold_start_is_fitted_apart_from_the_step_time(engine: EngineConfig, served: pl.DataFrame) -> None:
    cold = replay(Load.of(served), engine, ready_s=0.4)
    assert cold["arrival_s"].equals(served["arrival_s"])
    assert cold["first_scheduled_s"].min() == 0.4
    fitted = split(served.height, 0.5, 0)
    fit = fit_step_time(cold, engine, fitted=fitted, start=engine.step_time)
    assert fit.ready_s == pytest.approx(0.4, rel=0.1)
    assert fit.step_time.base_s == pytest.approx(engine.step_time.base_s, rel=0.1)
    assert fit_step_time(served, engine, fitted=fitted, start=engine.step_time).ready_s < 0.2


def test_prompts_beside_a_recording_are_shared_in_the_prefix_cache(
    engine: EngineConfig, served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    folder = as_folder(served, tmp_path / "run")
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
    shared, alone = predict(measured, engine), replay(Load.of(served), engine)
    waited = [(made["first_token_s"] - made["arrival_s"]).sum() for made in (shared, alone)]
    assert waited[0] < 0.9 * waited[1]
    without = engine.model_copy(update={"enable_prefix_caching": False})
    assert predict(measured, without)["finish_s"].to_list() == pytest.approx(
        (replay(Load.of(served), without)["finish_s"] - served["arrival_s"][0]).to_list(), abs=1e-4
    )
    with pytest.raises(UserError, match="change block_size"):
        predict(measured, engine.model_copy(update={"block_size": 24}))


def test_settings_that_are_none_of_an_engine_are_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    folder = as_folder(served, tmp_path / "run")
    with pytest.raises(UserError, match=r"changed field: num_gpu_block: .*did you mean 'num_gpu_blocks'"):
        calibrate(read_measured(folder), overrides={"num_gpu_block": 3})
    (folder / "meta.json").write_text(json.dumps({"kv_cache": {"block_size": "x"}}))
    with pytest.raises(UserError, match="recording run: block_size"):
        calibrate(read_measured(folder))


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
    from parsim.validate.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "parsim.validate.calibration.recording.calibrate", lambda *_, **__: pytest.fail("fitted")
    )
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
    with pytest.raises(UserError, match="fit share"):
        calibrate(measured, share=1.5)


def test_step_times_carry_over_to_other_settings(
    engine: EngineConfig, served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    """One recording's step times predict another of the same machine with a third of the sequences and scarce blocks
    that are not recorded; settings come from the recording that is predicted, and from `overrides` for it."""
    there = engine.model_copy(update={"max_num_seqs": 12, "num_gpu_blocks": 420})
    other = replay(Load.of(served), there)
    assert other["preemptions"].sum() > 3
    folder = as_folder(other, tmp_path / "other")
    meta = json.loads((folder / "meta.json").read_text())
    del meta["kv_cache"]["num_gpu_blocks"]
    meta["resolved_config"]["scheduler_config"]["max_num_seqs"] = 12
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    known = Calibrated(engine, None, None, {}, ())
    carried = carry(known, measured)
    assert carried.config.max_num_seqs == 12
    assert carried.config.step_time == engine.step_time
    assert carried.config.num_gpu_blocks == pytest.approx(420, abs=3)
    assert "memory was short: " in carried.config.provenance
    made = predict(measured, carried.config)
    table = errors([Pair("fcfs", "x", [measured.requests], [made])])
    assert table["error"].abs().max() < 0.01
    given = carry(known, measured, overrides={"num_gpu_blocks": 500, "max_num_seqs": 20})
    assert (given.config.num_gpu_blocks, given.config.max_num_seqs) == (500, 20)


@pytest.mark.deep
def test_data_parallel_engines_are_read_as_such(
    engine: EngineConfig, served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    """Two engines behind the balancer serve the drawn load in less time; read as one, the recording is far off."""
    crowd = served.with_columns(arrival_s=pl.col("arrival_s") / 3)
    small = engine.model_copy(update={"max_num_seqs": 12})
    pair = replay(Load.of(crowd, replicas=2, router="vllm-dp-0.19"), small)
    folder = as_folder(pair, tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    meta["engine_kwargs"] |= {"data_parallel_size": 2, "max_num_seqs": 12}
    (folder / "meta.json").write_text(json.dumps(meta))
    measured = read_measured(folder)
    assert (measured.replicas, measured.router) == (2, "vllm-dp-0.19")
    assert any("2 data-parallel engines" in note for note in measured.notes)
    known = Calibrated(small, None, None, {}, ())

    def off(replicas: int) -> float:
        read = dataclasses.replace(measured, replicas=replicas)
        made = predict(read, carry(known, read).config)
        table = errors([Pair("fcfs", "x", [read.requests], [made])])
        return float(table["error"].abs().max())  # type: ignore[arg-type]

    assert off(2) < 0.02
    assert off(1) > 0.5
    fit = calibrate(measured)
    assert fit.fit
    made = predict(measured, fit.config, fit.fit.ready_s)
    rest = [unfitted(frame, fit.fit.fitted) for frame in (measured.requests, made)]
    table = errors([Pair("fcfs", "x", [rest[0]], [rest[1]])])
    assert (
        table.filter(pl.col("metric").is_in(["mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"]))["error"]
        .abs()
        .max()
        < 0.05
    )


def test_a_fit_that_is_far_off_is_called_failed_and_makes_no_engine_file(
    engine: EngineConfig,
    served: pl.DataFrame,
    tmp_path: Path,
    as_folder: AsFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from parsim.validate.cli import app

    slow = engine.step_time.model_copy(update={"base_s": 1.3 * engine.step_time.base_s})
    fit = Fit(slow, 0.0, dict.fromkeys(TERMS, 0.1), 0.3, 1, 0.0, split(served.height, 0.5, 0))
    wrong = Calibrated(engine.model_copy(update={"step_time": slow}), fit, None, {}, ())
    for place in ("calibration.recording", "tiers.calibrate"):
        monkeypatch.setattr(f"parsim.validate.{place}.calibrate", lambda *_, **__: wrong)
    folder = as_folder(served, tmp_path / "run")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "engine.yaml").write_text("of an earlier run")
    result = CliRunner().invoke(app, ["recording", str(folder), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "The fit failed" in result.output
    assert not (tmp_path / "out" / "engine.yaml").exists()
    assert "The fit failed" in (tmp_path / "out" / "validation.html").read_text()
    result = CliRunner().invoke(app, ["calibrate", str(folder), "--out", str(tmp_path / "engine.yaml")])
    assert isinstance(result.exception, UserError)
    assert "the fit failed" in str(result.exception)
    assert not (tmp_path / "engine.yaml").exists()


@pytest.mark.deep
def test_the_first_third_predicts_the_rest(
    engine: EngineConfig, served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    measured = read_measured(as_folder(served, tmp_path / "run"))
    calibrated = calibrate(measured, share=1 / 3, earliest=True)
    assert calibrated.fit
    assert calibrated.fit.fitted.tolist() == [True] * 40 + [False] * 80
    made = predict(measured, calibrated.config, calibrated.fit.ready_s)
    rest = [unfitted(frame, calibrated.fit.fitted) for frame in (measured.requests, made)]
    table = errors([Pair("fcfs", "x", [rest[0]], [rest[1]])])
    assert table.filter(pl.col("metric").str.contains("e2el"))["error"].abs().max() < 0.05


def test_every_recorded_setting_is_used_or_named(
    served: pl.DataFrame, tmp_path: Path, as_folder: AsFolder
) -> None:
    folder = as_folder(served, tmp_path / "run")
    asked = {
        "tensor_parallel_size": 2,
        "data_parallel_size": 3,
        "kv_cache_dtype": "fp8_e4m3",
        "quantization": "awq",
        "seed": 42,
        "max_model_len": None,
        "pipeline_parallel_size": 2,
        "scheduling_policy": "priority",
        "speculative_config": {"method": "ngram"},
        "enable_lora": False,
        "num_gpu_blocks_override": 777,
        "long_prefill_token_threshold": 64,
    }
    (folder / "meta.json").write_text(
        json.dumps({"model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.1", "engine_kwargs": asked})
    )
    measured = read_measured(folder)
    assert measured.engine == {"num_gpu_blocks": 777, "long_prefill_token_threshold": 64}
    assert measured.put == {"tp": 2, "kv_cache_dtype": "fp8", "dtype": "int4"}
    assert (measured.replicas, measured.version) == (3, (0, 19))
    named = next(note for note in measured.notes if "not modelled" in note)
    for name in ("pipeline_parallel_size 2", "scheduling_policy priority", "speculative_config"):
        assert name in named
    for name in ("seed", "max_model_len", "enable_lora"):
        assert name not in named
    (folder / "meta.json").write_text(json.dumps({"engine_kwargs": {"data_parallel_size": "two"}}))
    with pytest.raises(UserError, match="data_parallel_size must be a whole number"):
        read_measured(folder)


def _worst(path: Path, label: str) -> float:
    """The largest error of mean, p90 and p99 of TTFT, TPOT and E2E in a report's folder."""
    table = pl.read_parquet(path / "errors.parquet").filter(
        pl.col("metric").str.contains("ttft|tpot|e2el"), pl.col("label") == label
    )
    return float(table["error"].abs().max())  # type: ignore[arg-type]


RUNS = ("RTX4090_Llama-3.1-8B", "RTX4090_Llama-3.1-8B_128seqs")


@pytest.mark.recordings
@pytest.mark.parametrize(("predicted", "other"), [RUNS, RUNS[::-1]])
def test_two_runs_of_an_rtx_4090_predict_each_other(
    shared: Path, tmp_path: Path, predicted: str, other: str
) -> None:
    """Golden: 256 and 128 sequences, three days apart; the step times of either, nothing fitted to the other but the
    number of blocks, which the run of 128 does not record."""
    from parsim.validate.cli import app

    runs = shared / "data/recordings"
    result = CliRunner().invoke(
        app, ["recording", str(runs / predicted), "--calibrate-on", str(runs / other), "--out", str(tmp_path)]
    )
    assert result.exit_code == 0, result.output
    assert _worst(tmp_path, "all requests") <= 0.008
    engine = load_engine(str(tmp_path / "engine.yaml"))
    assert engine.max_num_seqs == (128 if predicted.endswith("128seqs") else 256)
    assert ("memory was short" in engine.provenance) == predicted.endswith("128seqs")
    assert other in engine.step_time.provenance


@pytest.mark.recordings
def test_half_of_a_real_gpu_recording_predicts_the_other_half(shared: Path, tmp_path: Path) -> None:
    """Golden: half of 300 requests that vLLM 0.19 served on an RTX PRO 6000."""
    from parsim.validate.cli import app

    recording = shared / "data/recordings/RTXPRO6000_Llama-3.1-8B"
    result = CliRunner().invoke(app, ["recording", str(recording), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert _worst(tmp_path, "all requests") < 0.01
    assert _worst(tmp_path, "not fitted") < 0.015
    assert "Reading the weights once takes" in (tmp_path / "validation.html").read_text()
    assert load_engine(str(tmp_path / "engine.yaml")).step_time.source == "fitted"


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("RTX4090_Llama-3.1-8B", None),
        ("RTX4090_Llama-3.1-8B_128seqs", 2958),  # not recorded; as fitted in data/README.md
        ("RTXPRO6000_Llama-3.1-8B", None),  # not recorded; never short
    ],
)
def test_presets_are_within_15_percent_of_real_recordings(
    shared: Path, name: str, blocks: int | None
) -> None:
    """Golden: mean, p90 and p99 of TTFT, TPOT and E2E with the step time of the preset."""
    measured = read_measured(shared / "data/recordings" / name)
    config, _, _ = engine_of(measured, find_card(measured), {"num_gpu_blocks": blocks} if blocks else {})
    assert config.step_time.source == "roofline"
    table = errors([Pair("fcfs", "x", [measured.requests], [predict(measured, config)])])
    headline = table.filter(pl.col("metric").str.contains("^(mean|p90|p99)_(ttft|tpot|e2el)_ms$"))
    assert headline.height == 9
    assert headline["error"].abs().max() < 0.15
