"""What an engine at hand is asked to serve: a trace cut to what it can hold, scores, and a load that makes a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from parsim.emulation import emulate_scores
from parsim.engine import EngineConfig
from parsim.errors import UserError
from parsim.scheduler.policy import POLICIES, Policy
from parsim.simulation import simulate
from parsim.sweep.spec import ASSUMED_TAUS
from parsim.traces import Trace

OVERLOAD = 3.0
"""Requests arrive so many times faster than the engine can serve them, so that a queue builds up and drains.

Well past saturation: near it a queue's length depends without bound on a few percent of the engine's speed.
"""


def room_of(max_model_len: object) -> int:
    """Tokens that one request may have.

    Raises:
        UserError: no whole number above 0.
    """
    if isinstance(max_model_len, bool) or not isinstance(max_model_len, int) or max_model_len < 1:
        raise UserError(f"max_model_len={max_model_len}: expected a whole number above 0")
    return max_model_len


def cut(trace: Trace, requests: int, max_model_len: int, longest_output: int | None = None) -> Trace:
    """The first `requests` that fit `max_model_len`, responses cut to `longest_output`, from time zero.

    Raises:
        UserError: none fits.
    """
    frame = trace.frame
    if longest_output is not None:
        frame = frame.with_columns(pl.col("output_tokens").clip(upper_bound=longest_output))
    frame = frame.filter(pl.col("prompt_tokens") + pl.col("output_tokens") <= max_model_len).head(requests)
    if not frame.height:
        raise UserError(
            f"trace {trace.name}: no request fits max_model_len {max_model_len}; use a model with a longer context"
        )
    return Trace(frame.with_columns(pl.col("arrival_s") - pl.col("arrival_s").min()), trace.metadata)


def scored(
    trace: Trace, policies: Sequence[Policy], taus: Mapping[str, float] | None = None, seed: int = 0
) -> tuple[Trace, list[Policy], list[str]]:
    """The trace with a score column for every policy; those that it lacks are emulated, and labelled so.

    Returns:
        The trace, the policies (those that are emulated carry the tau that was reached), and notes in words.
    """
    frame, chosen, notes = trace.frame, [], []
    lengths = frame["output_tokens"].to_numpy()
    for policy in policies:
        emulated = policy.emulated_tau is not None or (
            policy.score is not None and policy.score not in frame.columns
        )
        if not emulated:
            chosen.append(policy)
            continue
        asked = policy.emulated_tau
        if asked is None:
            asked = (taus or {}).get(policy.name, ASSUMED_TAUS.get(policy.name))
        if asked is None:
            raise UserError(
                f"policy {policy.name} needs the column {policy.score}, which trace {trace.name} lacks; "
                f"score the trace, or emulate the predictor ({policy.name}=TAU)"
            )
        values, reached = emulate_scores(lengths, asked, seed)
        column = f"score.{policy.name}"
        frame = frame.with_columns(pl.Series(column, values))
        chosen.append(replace(policy, score=column, emulated_tau=reached))
        notes.append(
            f"{policy.name}: scores are emulated, Kendall tau-b {reached:.2f} reached ({asked:.2f} asked)"
        )
    return Trace(frame, trace.metadata), chosen, notes


def at_load(trace: Trace, load: float) -> Trace:
    """Arrivals come `load` times faster.

    Raises:
        UserError: a load that is no number above 0.
    """
    if not 0.0 < load < float("inf"):
        raise UserError(f"load {load:g}: expected a number above 0")
    return Trace(trace.frame.with_columns(pl.col("arrival_s") / load), trace.metadata)


def load_under_pressure(trace: Trace, engine: EngineConfig, overload: float = OVERLOAD) -> float:
    """The load at which requests arrive `overload` times faster than FCFS serves them from a full queue."""
    span = float(trace.frame["arrival_s"].to_numpy().max())
    work = float(simulate(trace, engine, POLICIES["fcfs"], load=1e9).requests["finish_s"].to_numpy().max())
    return overload * span / work if span > 0 else 1.0


def blocks_under_pressure(trace: Trace, engine: EngineConfig, load: float, share: float = 0.6) -> int:
    """`num_gpu_blocks` that is `share` of what FCFS would hold at most, so that memory runs short.

    A request of `max_model_len` fits beside vLLM's null block: without that room vLLM does not start.
    """
    run = simulate(trace, engine, POLICIES["fcfs"], load=load, steps="log")
    assert run.steps is not None
    held = engine.usable_blocks - int(run.steps["free_blocks"].to_numpy().min())
    return max(int(held * share) + 2, -(-engine.max_model_len // engine.block_size) + 1)
