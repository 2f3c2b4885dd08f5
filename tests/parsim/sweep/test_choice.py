"""The command line that runs a choice."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.engine import StepTime, load_engine
from parsim.scheduler.policy import parse_policy
from parsim.scheduler.settings import read_settings
from parsim.sweep.choice import SETTINGS, serve_command
from parsim.sweep.configuration import engine_columns, engine_of

ENGINE = load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 64})


def parsed(command: str) -> dict[str, str]:
    words = shlex.split(command)
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}


def test_the_scheduler_reads_back_the_settings_of_the_command() -> None:
    policy = replace(parse_policy("pars"), starvation_threshold_s=None, victim="worst")
    command = serve_command(policy.emulated(0.6), ENGINE)
    assert command.startswith("vllm serve meta-llama/Llama-3.1-8B-Instruct ")
    assert "--num-gpu-blocks-override" not in command
    options = parsed(command)
    assert options["--max-num-seqs"] == "64"
    assert options["--scheduler-cls"] == "parsim.scheduler.vllm.ParsScheduler"
    settings = read_settings(json.loads(options["--additional-config"])["parsim"], {})
    assert settings.resolved_policy() == policy
    assert settings.scorer == "parsim.predictor.scoring.scorer:create"


def test_plain_fcfs_needs_no_scheduler_class() -> None:
    command = serve_command(parse_policy("fcfs"), ENGINE, ["num_gpu_blocks"])
    assert "--scheduler-cls" not in command
    assert parsed(command)["--num-gpu-blocks-override"] == str(ENGINE.num_gpu_blocks)


def test_another_predictor_is_named_and_prompt_length_needs_none() -> None:
    assert serve_command(parse_policy("pointwise"), ENGINE).startswith(
        "PARSIM_PREDICTOR=pointwise vllm serve "
    )
    assert "scorer" not in serve_command(parse_policy("prompt-sjf"), ENGINE)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_setting_that_a_sweep_asks_for_is_in_the_command(data: st.DataObject) -> None:
    """vLLM's own parser would read each back: flag and value, for any field, also at vLLM's default."""
    name = data.draw(st.sampled_from(SETTINGS))
    kind = type(getattr(ENGINE, name))
    value = data.draw(
        st.booleans() if kind is bool else st.floats(0, 0.5) if kind is float else st.integers(64, 2048)
    )
    engine = ENGINE.model_copy(update={name: value})
    words = shlex.split(serve_command(parse_policy("fcfs"), engine, [name]))
    flag = "num-gpu-blocks-override" if name == "num_gpu_blocks" else name.replace("_", "-")
    if kind is bool:
        assert (f"--{flag}" if value else f"--no-{flag}") in words
    else:
        assert kind(words[words.index(f"--{flag}") + 1]) == value


def test_a_row_of_results_gives_its_engine_back() -> None:
    engine = ENGINE.model_copy(update={"watermark": 0.25, "step_time": StepTime(base_s=0.5)})
    assert engine_of(engine_columns(engine), ENGINE) == engine
