"""One point of a sweep: everything that determines one run, and the key under which its result is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from parsim.engine import EngineConfig
from parsim.engine.scoring_cost import ScoringCost
from parsim.scheduler import own_order
from parsim.scheduler.order import ORDERS
from parsim.scheduler.policy import Policy

Where = Literal["everywhere", "short", "long", "across"]


@dataclass(frozen=True)
class Dial:
    """Ranking errors of one kind: an oracle whose order is spoilt among the short responses only, among the long
    only, across the two halves, or everywhere. `tau` in [0, 1] sets how much is left of the right order."""

    where: Where
    tau: float


@dataclass(frozen=True)
class Point:
    """One run.

    Attributes:
        policy: order, guard and victim; its `emulated_tau` is set where its score is emulated.
        engine: every engine field, resolved.
        load: arrival rate as a multiple of the trace's.
        seed: draws the trace (a recorded one is replayed as it is under the sweep's lowest seed) and emulated scores.
        changed: the engine fields that the sweep varies, for display.
        dial: kind and amount of ranking errors, for the study of ranking quality.
        requests: length of the trace; None for its own.
        keep: what is kept beside the metrics: every request, or the steps as well.
    """

    policy: Policy
    engine: EngineConfig
    load: float
    seed: int
    changed: dict[str, Any] = field(default_factory=dict)
    dial: Dial | None = None
    keep: Literal["metrics", "requests", "steps"] = "metrics"
    requests: int | None = None

    def key(self, trace: str, slo: dict[str, float], scoring: ScoringCost | None) -> str:
        """A hash of all that determines the result: point, trace, targets, scoring cost, code."""
        policy = {k: v for k, v in asdict(self.policy).items() if k not in ("summary", "order")}
        content = {
            "trace": trace,
            "slo": slo,
            "scoring": scoring.model_dump() if scoring else None,
            "policy": policy,
            "order": _order_code(self.policy),
            "engine": self.engine.model_dump(mode="json"),
            "load": self.load,
            "seed": self.seed,
            "dial": asdict(self.dial) if self.dial else None,
            "keep": self.keep,
            "code": _code_fingerprint(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def _order_code(policy: Policy) -> tuple[str, str]:
    """Where the order stands, and a hash of that file where it is not the package's."""
    name = own_order.reference(policy.order)
    return name, "" if name in ORDERS else own_order.source_hash(policy.order)


@cache
def _code_fingerprint() -> str:
    """A hash of the package's source: a changed model never resumes from results of the old one."""
    root = Path(str(files("parsim")))
    digest = hashlib.sha256()
    for part in sorted(root.rglob("*.py")):
        digest.update(part.relative_to(root).as_posix().encode())
        digest.update(part.read_bytes())
    return digest.hexdigest()
