"""Step times of the engine at hand: the fit of five numbers, the design, the step log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from parsim.engine import StepTime, load_engine
from parsim.errors import UserError
from parsim.validate.calibration.calibrate import TOTALS, design, fit_steps, read_step_log
from parsim.validate.calibration.engine_file import write_engine
from parsim.validate.calibration.fit import TERMS
from parsim.validate.cli import app

TRUE = StepTime(base_s=1e-3, prefill_token_s=8e-6, decode_seq_s=4e-5, kv_token_s=1e-7, attention_pair_s=2e-9)


def steps(noise: float, n: int = 1200, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    decode = rng.integers(0, 33, n)
    kv = decode * rng.integers(10, 900, n)
    prefill = np.where(rng.random(n) < 0.3, rng.integers(1, 512, n), 0)
    pairs = prefill * (prefill + 1) // 2 + prefill * rng.integers(0, 300, n)
    seconds = TRUE.seconds(prefill, decode, kv, pairs) * np.exp(rng.normal(0, noise, n))  # type: ignore[arg-type]
    columns = dict(zip(TOTALS, (prefill, decode, kv, pairs), strict=True))
    return pl.DataFrame({**columns, "measured_ms": seconds * 1e3, "wave": np.arange(n) // 30})


def test_fit_recovers_the_terms_exactly_without_noise() -> None:
    found = fit_steps(steps(0.0), "test").step_time
    assert [getattr(found, t) for t in TERMS] == pytest.approx([getattr(TRUE, t) for t in TERMS], rel=1e-3)
    assert found.fit_error is not None
    assert found.fit_error["p90_step"] < 1e-3


def test_fit_shrugs_off_interrupted_steps_and_reports_held_out_error() -> None:
    noisy = steps(0.1)
    interrupted = noisy.with_columns(
        measured_ms=pl.when(pl.int_range(pl.len()) % 50 == 7)
        .then(pl.col("measured_ms") * 30)
        .otherwise("measured_ms")
    )
    found = fit_steps(interrupted, "test")
    assert found.step_time.base_s == pytest.approx(TRUE.base_s, rel=0.1)
    assert found.step_time.kv_token_s == pytest.approx(TRUE.kv_token_s, rel=0.2)
    error = found.step_time.fit_error
    assert error is not None
    # the median of |exp(N(0, 0.1)) - 1| is 0.067
    assert error["median_step"] == pytest.approx(0.067, abs=0.02)
    assert found.steps["held_out"].sum() == pytest.approx(0.25 * found.steps.height, rel=0.1)


def test_fit_never_gives_a_negative_term() -> None:
    flat = steps(0.3).with_columns(measured_ms=pl.lit(2.0))
    found = fit_steps(flat, "test").step_time
    assert min(getattr(found, t) for t in TERMS) >= 0
    assert found.seconds(0, 8, 800, 0) == pytest.approx(2e-3, rel=0.05)


def test_too_little_to_fit() -> None:
    with pytest.raises(UserError, match="too few"):
        fit_steps(steps(0.0).head(30), "test")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "measured_ms",
            pl.when(pl.int_range(pl.len()) == 6).then(float("nan")).otherwise(pl.col("measured_ms")),
            "row 7",
        ),
        (
            "measured_ms",
            pl.when(pl.int_range(pl.len()) == 6).then(None).otherwise(pl.col("measured_ms")),
            "row 7",
        ),
        ("measured_ms", -pl.col("measured_ms"), r"row 1 .*measured_ms above 0"),
        ("measured_ms", 0.0 * pl.col("measured_ms"), "row 1"),
        ("measured_ms", pl.col("measured_ms") * float("inf"), "row 1"),
        (
            "measured_ms",
            pl.col("measured_ms").cast(pl.String),
            "'measured_ms' holds String, expected numbers",
        ),
        ("measured_ms", pl.concat_list("measured_ms"), "'measured_ms' holds List"),
        ("kv_tokens", pl.col("kv_tokens").cast(pl.String), "'kv_tokens' holds String"),
        ("wave", pl.col("wave").cast(pl.String), "'wave' holds String"),
        ("prefill_tokens", -1 - pl.col("prefill_tokens"), r"row 1 .*totals must be 0 or more"),
    ],
)
def test_a_damaged_step_log_is_named(name: str, change: pl.Expr, message: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    steps(0.0).with_columns(change.alias(name)).write_parquet(path)
    with pytest.raises(UserError, match=message) as found:
        read_step_log(path)
    assert str(path) in str(found.value)


def test_idle_options_and_foreign_files_are_refused(tmp_path: Path) -> None:
    log, foreign = tmp_path / "steps.parquet", tmp_path / "mine.yaml"
    steps(0.0).write_parquet(log)
    foreign.write_text("precious: 1\n")
    engine = ["--engine", "llama-3.1-8b-a100-80g"]
    for arguments, message in (
        ([str(log), *engine, "--gpu", "x"], "--gpu: says nothing of a step log"),
        ([str(log), *engine, "--trace", "bundled"], "--trace: says nothing of a step log"),
        ([str(log), *engine, "--dummy"], "--dummy: says nothing of a step log"),
        ([str(log), *engine, "--clock", "wall"], "--clock: says nothing of a step log"),
        (["--gpu", "x"], "--gpu: says nothing of the engine at hand"),
        ([str(log), *engine, "--out", str(foreign)], "is no engine file"),
    ):
        result = CliRunner().invoke(app, ["calibrate", *arguments])
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)
    assert foreign.read_text() == "precious: 1\n"


def test_a_step_log_that_lacks_rows_or_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    steps(0.0).drop("attention_pairs").write_parquet(path)
    with pytest.raises(UserError, match=r"steps\.parquet: no column 'attention_pairs'"):
        read_step_log(path)
    steps(0.0).head(30).write_parquet(path)
    with pytest.raises(UserError, match=r"steps\.parquet: 30 steps are too few"):
        read_step_log(path)


def test_design_fits_the_pool_and_the_context() -> None:
    config = {"max_num_seqs": 12, "max_model_len": 512, "block_size": 32, "num_gpu_blocks": 60}
    waves = design(config, [(200, 100), (40, 300)], seed=1)
    assert waves == design(config, [(200, 100), (40, 300)], seed=1)
    assert max(prompt + output for wave in waves for _, prompt, output in wave) <= 512
    at_once = [wave for wave in waves if len(wave) > 1 and all(at == 0.0 for at, _, _ in wave)]
    assert {len(wave) for wave in at_once} >= {2, 4, 8}
    for wave in at_once:
        assert sum(-(-(p + o) // 32) for _, p, o in wave) <= 59
    # a step's kernels are quick where the last steps had the same size, which a trace's have not
    prompts = [prompt for wave in at_once if len(wave) > 4 for _, prompt, _ in wave]
    assert len(set(prompts)) > len(prompts) / 2


def test_step_log_of_a_simulation_and_engine_file_round_trip(tmp_path: Path) -> None:
    log = steps(0.0).with_columns(duration_s=pl.col("measured_ms") / 1e3).drop("measured_ms", "wave")
    log.write_parquet(tmp_path / "steps.parquet")
    found = fit_steps(read_step_log(tmp_path / "steps.parquet"), "test").step_time
    config = load_engine("llama-3.1-8b-a100-80g").model_copy(update={"step_time": found})
    write_engine(config, tmp_path / "engine.yaml", found.fit_error)
    again = load_engine(str(tmp_path / "engine.yaml"))
    assert again.step_time.base_s == pytest.approx(TRUE.base_s, rel=1e-3)
    assert again.num_gpu_blocks == config.num_gpu_blocks
    log.drop("duration_s").write_parquet(tmp_path / "steps.parquet")
    with pytest.raises(UserError, match="duration_s"):
        read_step_log(tmp_path / "steps.parquet")
