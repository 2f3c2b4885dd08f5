"""Policies on a real vLLM server, seen from the client's side, against the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine import EngineConfig, load_engine
from parsim.errors import UserError
from parsim.files import replacing
from parsim.scheduler.policy import POLICIES, Policy
from parsim.validate.calibration.recording import calibrate
from parsim.validate.calibration.replay import Load, replay
from parsim.validate.recordings.measured import COLUMNS, OPTIONAL, Measured
from parsim.validate.report.comparison import Pair

LOST = ("failed", "timeout", "not sent")
"""What became of a request that neither ended nor was cancelled by the client."""


@dataclass(frozen=True)
class PolicyRun:
    """One policy's replay: a row a request (see `client.replay`), and what the server said of its engine."""

    policy: Policy
    requests: pl.DataFrame
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Requests by status."""
        return dict(self.requests["status"].value_counts(sort=True).iter_rows())

    @property
    def lost(self) -> int:
        """Requests that neither ended nor were cancelled by the client."""
        return sum(self.counts.get(status, 0) for status in LOST)

    @property
    def loading(self) -> pl.DataFrame:
        """The requests that loaded the engine, in `Measured`'s columns: ended, or cancelled after some tokens."""
        return (
            self.requests.filter(pl.col("status").is_in(["ok", "cancelled"]), pl.col("output_tokens") > 0)
            .with_columns(arrival_s=pl.col("sent_s"), preemptions=pl.lit(None, pl.Float64))
            .select(*COLUMNS, *OPTIONAL, "score", "status")
            .sort("arrival_s", maintain_order=True)
        )


def keep(run: PolicyRun, folder: Path) -> Path:
    """Write the run's requests at once, so that nothing is lost when a later one fails."""
    path = folder / f"requests-{run.policy.name}.parquet"
    with replacing(path) as temporary:
        run.requests.write_parquet(temporary)
    return path


def failures(run: PolicyRun) -> list[str]:
    """What went wrong, in words, the most frequent first; empty if nothing did."""
    lost = run.requests.filter(pl.col("status").is_in(LOST))
    if not lost.height:
        return []
    reasons = lost.group_by("status", "error").len().sort("len", descending=True)
    return [
        f"{run.policy.label}: {n} {status}: {error or 'no reason given'}"
        for status, error, n in reasons.iter_rows()
    ]


def model_of(
    runs: list[PolicyRun], engine: str | None, settings: Mapping[str, Any], seed: int
) -> tuple[EngineConfig, str]:
    """The engine model: a file or preset, else fitted to half of the requests of the first run that fits.

    Raises:
        UserError: too few requests ended to fit anything.
    """
    if engine is not None:
        return load_engine(engine), f"model: {engine}"
    run = next((r for r in runs if not r.policy.ranked), None)
    if run is None:
        raise UserError(
            "without an engine file the policy fcfs must be among those that are run: the model is fitted to it"
        )
    known = {name: value for name, value in settings.items() if name in EngineConfig.model_fields}
    measured = Measured(
        run.loading.select(*COLUMNS, *OPTIONAL), f"{run.policy.name} on the server", {**run.facts, **known}
    )
    calibrated = calibrate(measured, seed=seed)
    return calibrated.config, f"model: {calibrated.config.step_time.provenance}"


def pair_of(run: PolicyRun, config: EngineConfig) -> Pair:
    """Real and model over the requests that ended; cancelled ones load the model up to where they were cut."""
    loading = run.loading
    ranked = run.policy.ranked
    policy = run.policy if ranked else POLICIES["fcfs"]
    made = replay(Load.of(loading, "score" if ranked else None), config, policy)
    ended = loading.filter(pl.col("status") == "ok")
    return Pair(
        run.policy.name,
        run.policy.label,
        [ended],
        [made.filter(pl.col("request_id").is_in(ended["request_id"].to_list()))],
    )
