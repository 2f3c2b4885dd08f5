"""The command line that runs a choice."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from parsim.engine import load_engine
from parsim.scheduler.policy import parse_policy
from parsim.scheduler.settings import read_settings
from parsim.sweep.choice import serve_command

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
    command = serve_command(parse_policy("fcfs"), ENGINE, pin_blocks=True)
    assert "--scheduler-cls" not in command
    assert parsed(command)["--num-gpu-blocks-override"] == str(ENGINE.num_gpu_blocks)


def test_another_predictor_is_named_and_prompt_length_needs_none() -> None:
    assert serve_command(parse_policy("pointwise"), ENGINE).startswith(
        "PARSIM_PREDICTOR=pointwise vllm serve "
    )
    assert "scorer" not in serve_command(parse_policy("prompt-sjf"), ENGINE)
