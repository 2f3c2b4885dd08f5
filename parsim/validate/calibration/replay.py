"""Measured requests through the simulated engine, without the ceremony of a trace: a fit does it a thousand times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from parsim.engine import EngineConfig
from parsim.engine.prefix_ids import UnfitHashes
from parsim.engine.run import Workload, run
from parsim.errors import UserError
from parsim.fleet import run_fleet
from parsim.router import router_of
from parsim.scheduler.policy import POLICIES, Policy
from parsim.validate.recordings.measured import SHARED, Measured
from parsim.validate.recordings.prompts import HASH_TOKENS

Array = np.ndarray


@dataclass(frozen=True)
class Load:
    """Requests as lists, in order of arrival.

    Attributes:
        request_id, arrival_s, prompt_tokens, output_tokens: one entry a request.
        score: what a ranked policy goes by; None for all without one.
        shared: leading blocks that prompts share (`prompts.shared_blocks`); None if no prompt is known.
        replicas: engines that served it, behind the balancer `router`.
    """

    request_id: Sequence[str]
    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    score: Sequence[float | None] | None = None
    shared: Sequence[list[int]] | None = None
    replicas: int = 1
    router: str = "vllm-dp"

    @classmethod
    def of(
        cls, frame: pl.DataFrame, score: str | None = None, replicas: int = 1, router: str = "vllm-dp"
    ) -> Load:
        """The load of a measurement or a trace; `score` names the column that ranks, if any."""
        return cls(
            frame["request_id"].to_list(),
            frame["arrival_s"].to_list(),
            frame["prompt_tokens"].to_list(),
            frame["output_tokens"].to_list(),
            frame[score].cast(pl.Float64).to_list() if score else None,
            frame[SHARED].to_list() if SHARED in frame.columns else None,
            replicas,
            router,
        )


def load_of(measured: Measured) -> Load:
    """The load of a recording, on as many engines as it had."""
    return Load.of(measured.requests, replicas=measured.replicas, router=measured.router)


def replay(
    load: Load, config: EngineConfig, policy: Policy = POLICIES["fcfs"], ready_s: float = 0.0
) -> pl.DataFrame:
    """What the simulated engine does with `load`: one row a request, in order, in `Measured`'s columns.

    `ready_s`: when the engine starts; what arrived sooner waits until then.

    Raises:
        UserError: a request can never run on this engine, though it did on the measured one; or its blocks are of a
            size at which nothing is known of what prompts share.
    """
    workload = Workload(
        load.request_id,
        [max(arrival_s, ready_s) for arrival_s in load.arrival_s],
        load.prompt_tokens,
        load.output_tokens,
        load.score,
        load.shared,
        HASH_TOKENS,
    )
    try:
        outcome = (
            run(workload, config, policy)
            if load.replicas == 1
            else run_fleet(workload, [config] * load.replicas, policy, router_of(load.router))
        )
    except UnfitHashes as error:
        raise UserError(f"{error}; change block_size or switch prefix caching off") from error
    if outcome.rejected:
        row, reason = next(iter(outcome.rejected.items()))
        raise UserError(
            f"request {load.request_id[row]} was served in the measurement but not by the model: {reason}; "
            "set the engine's true settings (num_gpu_blocks, max_model_len)"
        )
    return pl.DataFrame(
        {
            "request_id": load.request_id,
            "arrival_s": load.arrival_s,
            **{
                name: np.asarray(outcome.times[name])
                for name in ("first_scheduled_s", "first_token_s", "finish_s")
            },
            "prompt_tokens": load.prompt_tokens,
            "output_tokens": load.output_tokens,
            "preemptions": np.asarray(outcome.counts["preemptions"], dtype=float),
        }
    )


def peak_blocks(load: Load, frame: pl.DataFrame, block_size: int) -> int:
    """An upper bound on the KV blocks that were held at one moment, from first schedule to finish."""
    tokens = np.asarray(load.prompt_tokens) + np.asarray(load.output_tokens)
    blocks = -(-tokens // block_size)
    times = np.concatenate([frame["first_scheduled_s"].to_numpy(), frame["finish_s"].to_numpy()])
    change = np.concatenate([blocks, -blocks])
    return int(np.cumsum(change[np.argsort(times, kind="stable")]).max())
