"""The real vLLM engine on a CPU: replay, step records, calibration, and the report of one go."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from parsim.engine import load_engine
from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES, parse_policy
from parsim.simulation import simulate
from parsim.traces import Trace
from parsim.validate.calibration.calibrate import design
from parsim.validate.calibration.probe import Timed
from parsim.validate.live.architectures import parameters, write_model_folder
from parsim.validate.live.clock import CpuClock, WallClock
from parsim.validate.live.engine_settings import engine_settings
from parsim.validate.live.live_engine import engine_arguments
from parsim.validate.live.serving import Served, undisturbed
from parsim.validate.live.workload import (
    at_load,
    blocks_under_pressure,
    cut,
    load_under_pressure,
    room_of,
    scored,
)
from parsim.validate.tiers.auto import read_choice, scaled
from parsim.validate.tiers.policies import CPU_SETTINGS, GPU_SETTINGS

ENGINE = load_engine(
    "llama-3.1-8b-a100-80g",
    {
        "max_num_seqs": 8,
        "num_gpu_blocks": 400,
        "max_model_len": 512,
        "async_scheduling": False,
        "step_time.base_s": 0.01,
    },
)


def trace(n: int = 120, seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(
        pl.DataFrame(
            {
                "request_id": [f"r{i}" for i in range(n)],
                "arrival_s": np.cumsum(rng.exponential(0.5, n)),
                "prompt_tokens": rng.integers(10, 300, n),
                "output_tokens": rng.integers(4, 120, n),
            }
        ),
        {"name": "made"},
    )


def test_published_parameter_counts() -> None:
    """Counts from the models' cards, in billions."""
    published = {"llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "llama-3.1-8b": 8.03, "llama-3.1-70b": 70.6}
    published |= {
        "qwen2.5-7b": 7.62,
        "qwen2.5-14b": 14.8,
        "qwen2.5-32b": 32.8,
        "mistral-7b": 7.25,
        "smollm2-135m": 0.135,
    }
    for name, billions in published.items():
        assert parameters(name) / 1e9 == pytest.approx(billions, rel=0.01), name


def test_unknown_architecture_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean 'llama-3\.1-8b'"):
        write_model_folder("llama3.1-8b", tmp_path)


def test_clocks() -> None:
    clock = CpuClock()
    clock.wait_until(100.0)
    assert 100.0 <= clock.now() < 101.0
    clock.wait_until(50.0)
    assert clock.now() < 101.0
    before = clock.now()
    with clock.outside():
        sum(range(2_000_000))
    assert clock.now() - before < 0.005
    wall = WallClock()
    wall.wait_until(0.02)
    assert wall.now() >= 0.02
    before = wall.now()
    with wall.outside():
        time.sleep(0.5)
    assert wall.now() - before < 0.4


def test_a_run_is_disturbed_by_turns_on_the_core_or_by_another_speed_after_it() -> None:
    def timed(wall_s: float, before: float, after: float) -> Timed:
        nothing = pl.DataFrame()
        return Timed(Served(nothing, nothing, "cpu", (0.0, 0.0), wall_s, 1.0, {}), before, after)

    assert timed(1.02, 1.2, 1.2).disturbance == pytest.approx(0.02)
    assert timed(1.0, 1.2, 1.5).disturbance == pytest.approx(0.25)
    assert timed(1.0, 1.2, 1.5).speed == pytest.approx(1.35)
    runs = iter([timed(1.0, 1.0, 1.5), timed(1.0, 1.5, 1.8), timed(1.3, 1.8, 1.8), timed(1.12, 1.8, 1.8)])
    best, made = undisturbed(lambda: next(runs), lambda run: run.disturbance)
    assert made == 4
    assert best.served.wall_s == 1.12


def test_cut_keeps_what_fits_and_starts_at_zero() -> None:
    whole = trace()
    part = cut(whole, 50, max_model_len=250, longest_output=60)
    assert len(part) == 50
    assert part.frame["arrival_s"][0] == 0.0
    assert (part.frame["prompt_tokens"] + part.frame["output_tokens"]).max() <= 250  # type: ignore[operator]
    assert part.frame["output_tokens"].max() == 60
    with pytest.raises(UserError, match="no request fits"):
        cut(whole, 50, max_model_len=5)


@pytest.mark.parametrize("given", ["x", 0, -1, 2.5, None, True])
def test_a_model_length_that_is_none_is_named(given: object) -> None:
    with pytest.raises(UserError, match=r"max_model_len=.*whole number"):
        room_of(given)


def test_load_under_pressure_overloads_the_engine_as_asked() -> None:
    work = trace()
    load = load_under_pressure(work, ENGINE, overload=4.0)
    frame = simulate(work, ENGINE, POLICIES["fcfs"], load=load).requests
    busy, arriving = (float(frame[column].to_numpy().max()) for column in ("finish_s", "arrival_s"))
    assert busy / arriving == pytest.approx(4.0, rel=0.1)


def test_blocks_under_pressure_preempt_but_serve_all() -> None:
    work = trace()
    load = load_under_pressure(work, ENGINE)
    blocks = blocks_under_pressure(work, ENGINE, load)
    tight = simulate(
        work, ENGINE.model_copy(update={"num_gpu_blocks": blocks}), POLICIES["fcfs"], load=load
    ).requests
    assert tight["preemptions"].sum() > 0
    assert tight["finish_s"].null_count() == 0
    few = cut(work, 2, ENGINE.max_model_len)
    blocks = blocks_under_pressure(few, ENGINE, load)
    assert blocks == -(-ENGINE.max_model_len // ENGINE.block_size) + 1  # vLLM starts with no less


def test_missing_scores_are_emulated_and_said_so() -> None:
    found, policies, notes = scored(
        trace(), [POLICIES["fcfs"], POLICIES["pars"], parse_policy("emulated(tau=0.3)")]
    )
    assert policies[0] == POLICIES["fcfs"]
    assert policies[1].label.startswith("pars (emulated, tau 0.5")
    assert {"score.pars", "score.emulated(tau=0.3)"} <= set(found.frame.columns)
    assert len(notes) == 2
    real = Trace(trace().frame.with_columns(pl.lit(1.0).alias("score.pars")), {})
    _, policies, notes = scored(real, [POLICIES["pars"]])
    assert policies == [POLICIES["pars"]]
    assert notes == []


def test_choice_is_read_and_cut_to_a_cpu(tmp_path: Path) -> None:
    content = {
        "trace": {"0": "trace.parquet"},
        "policy": {"name": "pars"},
        "policies": [{"name": "fcfs"}, {"name": "pars", "emulated_tau": 0.56}],
        "engine": ENGINE.model_dump(mode="json"),
    }
    (tmp_path / "choice.json").write_text(json.dumps(content))
    chosen = read_choice(tmp_path / "choice.json")
    assert (chosen.policy, chosen.policies, chosen.taus) == ("pars", ("fcfs", "pars"), {"pars": 0.56})
    assert chosen.trace == str((tmp_path / "trace.parquet").resolve())
    settings, notes = scaled(chosen.engine, "cpu")
    assert settings["max_num_seqs"] == 8
    assert settings["block_size"] == 32
    assert "num_gpu_blocks" not in settings
    assert "settings were cut" in notes[0]
    assert scaled(chosen.engine, "gpu")[0]["num_gpu_blocks"] == 400
    (tmp_path / "choice.json").write_text("{}")
    with pytest.raises(UserError, match=r"is no choice\.json"):
        read_choice(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engine": "big"}, r"engine: .*\(got 'big'\)"),
        ({"engine": ENGINE.model_dump(mode="json") | {"max_num_seqs": "many"}}, r"engine\.max_num_seqs: "),
        ({"engine": ENGINE.model_dump(mode="json") | {"max_model_len": None}}, r"engine\.max_model_len: "),
        ({"policies": [{"name": 5}]}, r"policies\.0\.name: .*\(got 5\)"),
        ({"policies": [{"name": "pars", "emulated_tau": 9}]}, r"policies\.0\.emulated_tau: "),
        ({"policies": []}, r"policies: "),
        ({"trace": {}}, r"trace: "),
    ],
)
def test_a_field_of_the_wrong_kind_in_a_choice_is_named(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    content = {
        "trace": {"0": "trace.parquet"},
        "policy": {"name": "pars"},
        "policies": [{"name": "pars"}],
        "engine": ENGINE.model_dump(mode="json"),
    }
    (tmp_path / "choice.json").write_text(json.dumps(content | changes))
    with pytest.raises(UserError, match=rf"choice\.json: is no choice\.json of a sweep \({message}"):
        read_choice(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_num_seq", "8", r"max_num_seq: .*did you mean 'max_num_seqs'"),
        ("step_time.base_s", "1", "no setting of a real engine"),
        ("max_num_seqs", "many", r"max_num_seqs: .*\(got 'many'\)"),
        ("max_num_seqs", "0", r"max_num_seqs: .*\(got 0\)"),
        ("block_size", "true", r"block_size: expected a number"),
        ("num_gpu_blocks", "abc", r"num_gpu_blocks: .*\(got 'abc'\)"),
        ("num_gpu_blocks", "-5", r"num_gpu_blocks: .*\(got -5\)"),
        ("num_gpu_blocks", "32", r"num_gpu_blocks=32: .* max_model_len 1024 needs 33 blocks"),
        ("max_num_batched_tokens", "8", r"max_num_batched_tokens \(8\) must be at least max_num_seqs \(16\)"),
    ],
)
def test_a_setting_that_vllm_would_refuse_is_named_before_it_starts(
    name: str, value: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        engine_settings({name: value}, CPU_SETTINGS)


def test_settings_from_a_command_line_have_their_types() -> None:
    given = {"num_gpu_blocks": "33", "enable_prefix_caching": "false"}
    assert engine_settings(given, CPU_SETTINGS) == CPU_SETTINGS | {
        "num_gpu_blocks": 33,
        "enable_prefix_caching": False,
    }


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
def test_a_load_at_which_nothing_would_ever_arrive_is_refused(load: float) -> None:
    with pytest.raises(UserError, match=r"load .*above 0"):
        at_load(trace(), load)


def test_engine_arguments_for_a_gpu_and_a_cpu() -> None:
    """All that a GPU run differs in before the device is called: compiled, and memory left to vLLM."""
    gpu = engine_arguments(GPU_SETTINGS, cuda=True, dummy=True)
    assert gpu == {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "max_model_len": 4096,
        "block_size": 16,
        "num_gpu_blocks_override": 1200,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
    }
    cpu = engine_arguments(GPU_SETTINGS, cuda=False, dummy=False)
    assert cpu["enforce_eager"] is True
    assert cpu["kv_cache_memory_bytes"] > 0
    assert "load_format" not in cpu
    waves = design(GPU_SETTINGS | {"num_gpu_blocks": 1200}, [(170, 230), (400, 900)])
    # a step of Llama-3.1-8B takes some 10 ms on an 80 GB card: the longest wave ends within seconds
    assert sum(max(output for _, _, output in wave) for wave in waves) * 0.01 < 60


@pytest.mark.vllm
def test_engine_tier_in_one_go(tmp_path: Path) -> None:
    """40 requests under two policies on the tiny model: lengths, times and steps are what they must be."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from parsim.validate.tiers.engine import run_engine
    from parsim.validate.tiers.options import EngineRun

    report = run_engine(
        EngineRun(
            out=tmp_path,
            policy=["fcfs", "oracle"],
            requests=40,
            repeats=1,
            clock="cpu",
            longest_output=60,
        )
    )
    table = pl.read_parquet(tmp_path / "errors.parquet")
    assert set(table["policy"]) == {"fcfs", "oracle"}
    for policy in ("fcfs", "oracle"):
        requests = pl.read_parquet(tmp_path / "runs" / f"cpu-{policy}-0-requests.parquet")
        steps = pl.read_parquet(tmp_path / "runs" / f"cpu-{policy}-0-steps.parquet")
        assert requests.height == 40
        assert (requests["first_scheduled_s"] <= requests["first_token_s"]).all()
        assert (requests["first_token_s"] <= requests["finish_s"]).all()
        assert (requests["arrival_s"] <= requests["first_scheduled_s"]).all()
        # every response token but the first of each (re)admission comes out of a decode
        tokens = int(requests["output_tokens"].sum())
        # A token comes from a decode or from the step in which a request (re)catches up: once each, and again after
        # a preemption, unless that struck before it had caught up.
        recaught = tokens - 40 - int(steps["decode_seqs"].sum())
        assert 0 <= recaught <= int(requests["preemptions"].sum())
        assert int(steps["preempted"].sum()) == int(requests["preemptions"].sum())
        assert int(steps["prefill_tokens"].sum()) >= int(requests["prompt_tokens"].sum())
    engine = load_engine(str(tmp_path / "engine-cpu.yaml"))
    assert engine.step_time.source == "fitted"
    assert engine.async_scheduling is False
    assert engine.max_num_seqs == 16
    assert report.verdicts["cpu"].headline
    assert "Step times" in (tmp_path / "validation.html").read_text()
