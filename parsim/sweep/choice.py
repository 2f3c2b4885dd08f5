"""`choice.json`: what a sweep chose and predicts, for `parsim validate`; and the command line that runs it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine import EngineConfig
from parsim.files import replacing
from parsim.metrics import METRICS
from parsim.scheduler import own_order
from parsim.scheduler.policy import Policy
from parsim.scheduler.settings import PREDICTOR_VARIABLE, SCHEDULER_CLASS
from parsim.sweep.choose import Decision
from parsim.sweep.configuration import ENGINE_COLUMNS, engine_of
from parsim.sweep.plan import Grid
from parsim.sweep.workload import Workload

SETTINGS = [name for name in ENGINE_COLUMNS if name != "step_time"]
"""Engine fields that a server can be started with; how long a step takes is the card's and the model's."""
TOLD = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "enable_prefix_caching")
"""Settings whose default in vLLM depends on the card or the entry point: always given."""
SHIPPED_DEFAULT = "pars"
"""The predictor that the scorer loads when none is named."""


def serve_command(policy: Policy, engine: EngineConfig, asked: Collection[str] = ()) -> str:
    """The `vllm serve` command line that runs these settings.

    It names the fields in `asked` (those that a sweep set or varied), what differs from vLLM's default, and what
    vLLM would choose by the card (every `max_*`). `num_gpu_blocks` is what vLLM finds on the card unless asked for.
    """
    words = ["vllm", "serve", *shlex.split(engine.serve)]
    for name, field in EngineConfig.model_fields.items():
        value = getattr(engine, name)
        told = name in TOLD or (value != field.default and name != "num_gpu_blocks")
        if name in SETTINGS and (told or name in asked):
            words += _option(name, value)
    before = ""
    if policy.ranked or policy.victim != "last":
        words += ["--scheduler-cls", SCHEDULER_CLASS]
        settings: dict[str, Any] = {"policy": policy.reference}
        if policy.ranked:
            guard = policy.starvation_threshold_s
            settings["starvation_threshold_s"] = "none" if guard is None else guard
            others = {
                name: getattr(policy, name) for name in ("starvation_s_per_token", "ageing_tokens_per_s")
            }
            settings |= {name: value for name, value in others.items() if value is not None}
        settings["victim"] = policy.victim
        if policy.has_predictor:
            settings["scorer"] = "parsim.predictor.scoring.scorer:create"
            if policy.predictor != SHIPPED_DEFAULT:
                before = f"{PREDICTOR_VARIABLE}={policy.predictor} "
        words += ["--additional-config", json.dumps({"parsim": settings})]
    return before + shlex.join(words)


def _option(name: str, value: object) -> list[str]:
    """A setting as `vllm serve` takes it."""
    flag = "num-gpu-blocks-override" if name == "num_gpu_blocks" else name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", f"{value}"]


def chosen(decision: Decision, grid: Grid) -> tuple[Policy, EngineConfig]:
    """The policy and engine of a decision."""
    row = decision.row
    policy = replace(
        grid.base[str(row["policy"])],
        starvation_threshold_s=row["starvation_threshold_s"],  # type: ignore[arg-type]
        victim=row["victim"],  # type: ignore[arg-type]
    )
    return policy, engine_of(row, grid.engine)


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
    fields = {k: v for k, v in asdict(policy).items() if k not in ("summary", "order")}
    return {**fields, "order": own_order.reference(policy.order), "label": policy.label}
