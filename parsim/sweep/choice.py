"""`choice.json`: what a sweep chose and predicts, for `python -m validate`; and the command line that runs it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine import EngineConfig
from parsim.files import replacing
from parsim.metrics import METRICS
from parsim.scheduler.policy import Policy
from parsim.sweep.choose import Decision
from parsim.sweep.plan import Grid
from parsim.sweep.workload import Workload

SERVED = {
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B-Instruct",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B-Instruct",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B-Instruct",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2.5-14b": "Qwen/Qwen2.5-14B-Instruct",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B-Instruct",
    "mistral-7b": "mistralai/Mistral-7B-Instruct-v0.3",
    "deepseek-r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
}
"""Names on the hub of the presets' models; any other is left as MODEL."""
SHIPPED_DEFAULT = "pars"
"""The predictor that the scorer loads when none is named."""


def serve_command(policy: Policy, engine: EngineConfig, *, pin_blocks: bool = False) -> str:
    """The `vllm serve` command line that runs these settings.

    `num_gpu_blocks` is what vLLM finds on the card, unless `pin_blocks` asks for the engine's number.
    """
    model = next((full for short, full in SERVED.items() if engine.name.startswith(short)), "MODEL")
    words = ["vllm", "serve", model]
    words += ["--max-num-seqs", str(engine.max_num_seqs)]
    words += ["--max-num-batched-tokens", str(engine.max_num_batched_tokens)]
    words += ["--max-model-len", str(engine.max_model_len), "--block-size", str(engine.block_size)]
    words.append("--enable-prefix-caching" if engine.enable_prefix_caching else "--no-enable-prefix-caching")
    if engine.long_prefill_token_threshold:
        words += ["--long-prefill-token-threshold", str(engine.long_prefill_token_threshold)]
    if not engine.enable_chunked_prefill:
        words.append("--no-enable-chunked-prefill")
    if not engine.async_scheduling:
        words.append("--no-async-scheduling")
    if pin_blocks:
        words += ["--num-gpu-blocks-override", str(engine.num_gpu_blocks)]
    before = ""
    if policy.ranked or policy.victim != "last":
        words += ["--scheduler-cls", "parsim.scheduler.vllm.ParsScheduler"]
        settings: dict[str, Any] = {"policy": policy.name}
        if policy.ranked:
            guard = policy.starvation_threshold_s
            settings["starvation_threshold_s"] = "none" if guard is None else guard
        settings["victim"] = policy.victim
        if policy.has_predictor:
            settings["scorer"] = "parsim.predictor.scoring.scorer:create"
            if policy.name != SHIPPED_DEFAULT:
                before = f"PARSIM_PREDICTOR={policy.name} "
        words += ["--additional-config", json.dumps({"parsim": settings})]
    return before + shlex.join(words)


def chosen(decision: Decision, grid: Grid) -> tuple[Policy, EngineConfig]:
    """The policy and engine of a decision."""
    row = decision.row
    policy = replace(
        grid.base[str(row["policy"])],
        starvation_threshold_s=row["starvation_threshold_s"],  # type: ignore[arg-type]
        victim=row["victim"],  # type: ignore[arg-type]
    )
    fields = ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens")
    return policy, grid.engine.model_copy(update={name: row[name] for name in fields})


def write_choice(
    folder: Path,
    decision: Decision,
    grid: Grid,
    workload: Workload,
    results: pl.DataFrame,
    load: float,
    seeds: Sequence[int],
    facts: dict[str, Any],
) -> None:
    """Write `choice.json` into `folder`. Paths in it are relative to the folder."""
    policy, engine = chosen(decision, grid)
    means = (
        results.filter(
            pl.col("study") == "main", pl.col("load") == load, pl.col("changed") == results["changed"][0]
        )
        .group_by("policy", maintain_order=True)
        .agg(pl.col([m for m in METRICS if m in results.columns]).mean())
    )
    content = {
        "trace": {str(seed): os.path.relpath(path, folder) for seed, path in workload.paths.items()},
        "load": load,
        "seeds": list(seeds),
        "policy": _policy(policy),
        "engine": engine.model_dump(mode="json"),
        "objective": facts["objective"],
        "subject_to": facts["subject_to"],
        "feasible": decision.feasible,
        "predicted": {m: decision.row[m] for m in METRICS if m in decision.row},
        "baseline_engine": grid.engine.model_dump(mode="json"),
        "policies": [
            {**_policy(grid.base[row["policy"]]), "predicted": {m: row[m] for m in METRICS if m in row}}
            for row in means.iter_rows(named=True)
        ],
        "command": facts["command"],
    }
    with replacing(folder / "choice.json") as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _policy(policy: Policy) -> dict[str, Any]:
    return {**{k: v for k, v in asdict(policy).items() if k != "summary"}, "label": policy.label}
