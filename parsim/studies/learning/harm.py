"""Scores that do not rank, and clients that lie: latency against first come, first served, with and without the judge.

python -m parsim.studies.learning.harm
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from parsim.emulation import emulate_scores
from parsim.engine.config import EngineConfig
from parsim.engine.run import Workload, run
from parsim.engine.step_time import StepTime
from parsim.learner.judge import ScoreJudge
from parsim.scheduler.judge import Judge
from parsim.scheduler.policy import POLICIES
from parsim.scheduler.request import WaitingRequest

Floats = npt.NDArray[np.float64]

REQUESTS = 5000
LOADS = (1.1, 1.4)
SEEDS = (1, 2, 3)
ENGINE = EngineConfig(
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    num_gpu_blocks=26_000,
    max_model_len=8192,
    step_time=StepTime(base_s=0.012, prefill_token_s=5e-5, decode_seq_s=1e-5, kv_token_s=5e-8),
)


class Names(ScoreJudge):
    """A judge that is told which client claims what."""

    def __init__(self, clients: dict[str, str]) -> None:
        super().__init__()
        self._clients = clients

    def heard(self, request: WaitingRequest) -> float | None:
        """As of `ScoreJudge`."""
        request.claimant = self._clients[request.request_id]
        return super().heard(request)


class UntilTold(ScoreJudge):
    """A judge that knows at once when scores turn: trusts until the request `last` has been admitted."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.trusted = True
        self._last = last

    def heard(self, request: WaitingRequest) -> float | None:
        """Trust ends when the first of the turned scores arrives."""
        if request.request_id == self._last:
            self.trusted = False
        return super().heard(request)

    def reassess(self) -> None:
        """Nothing to find out."""


def workload(load: float, seed: int) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Arrivals (s), prompt and response tokens; 1.0 is the rate at which the engine serves a burst of them."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0, REQUESTS)
    prompts = np.clip(rng.lognormal(5.5, 0.9, REQUESTS), 10, 3000).astype(np.int64)
    outputs = np.clip(rng.lognormal(5.0, 0.9, REQUESTS), 2, 2000).astype(np.int64)
    burst = latencies((np.zeros(REQUESTS), prompts, outputs), None)
    rate = load * REQUESTS / float(burst.max())
    return np.cumsum(gaps) / rate, prompts, outputs


def latencies(
    requests: tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]],
    scores: Floats | None,
    judge: Judge | None = None,
    policy: str | None = None,
) -> Floats:
    """End-to-end latency in seconds of each request: under `pars` with these scores, or first come, first served."""
    arrivals, prompts, outputs = requests
    load = Workload(
        [f"r{number}" for number in range(len(arrivals))],
        arrivals.tolist(),
        prompts.tolist(),
        outputs.tolist(),
        None if scores is None else [None if np.isnan(score) else score for score in scores.tolist()],
    )
    chosen = POLICIES[policy or ("fcfs" if scores is None else "pars")]
    outcome = run(load, ENGINE, chosen, judge=judge)
    return np.frombuffer(outcome.times["finish_s"]) - arrivals


def scores_of(kind: str, outputs: npt.NDArray[np.int64], seed: int) -> Floats:
    """Scores of a kind: a tau, `constant`, `nan`, or `inverted midway` (0.6, then -0.6)."""
    if kind == "constant":
        return np.ones(len(outputs))
    if kind == "nan":
        return np.full(len(outputs), np.nan)
    if kind == "inverted midway":
        good = emulate_scores(outputs, 0.6, seed)[0]
        return np.where(np.arange(len(outputs)) < len(outputs) // 2, good, -good)
    return emulate_scores(outputs, float(kind), seed)[0]


def harm() -> None:
    """Print one row a kind of scores: mean and p99 latency as multiples of first come, first served, worst seed."""
    print("| load | scores | without judge: mean, p99 | with judge: mean, p99 | scores in use, out of use |")
    print("|---|---|---|---|---|")
    kinds = ("-0.6", "-0.3", "0", "constant", "nan", "inverted midway", "0.2", "0.4", "0.6")
    for load in LOADS:
        for kind in kinds:
            free, judged, told, turns = [], [], [], []
            for seed in SEEDS:
                requests = workload(load, seed)
                base = latencies(requests, None)
                scores = scores_of(kind, requests[2], seed + 10)
                judge = ScoreJudge()
                free.append(_ratios(latencies(requests, scores), base))
                judged.append(_ratios(latencies(requests, scores, judge), base))
                turns.append((judge.trusted_times, judge.distrusted_times))
                if kind == "inverted midway":
                    last = UntilTold(f"r{REQUESTS // 2}")
                    told.append(_ratios(latencies(requests, scores, last), base))
            note = f" (told at once: {_worst(told)})" if told else ""
            counts = " / ".join(f"{on}, {off}" for on, off in turns)
            print(f"| {load} | {kind} | {_worst(free)} | {_worst(judged)}{note} | {counts} |", flush=True)


def lies() -> None:
    """Print one row an attack: mean latency of honest clients and of the liar, over first come, first served."""
    print("\n| load | attack | honest, liar: as claimed | with judge, no client named | with clients named |")
    print("|---|---|---|---|---|")
    attacks: dict[str, Callable[[Floats, np.random.Generator], tuple[npt.NDArray[np.bool_], float]]] = {
        "30% of the traffic claims -1e9": lambda at, rng: (rng.random(len(at)) < 0.3, -1e9),
        "30% of the traffic claims 1e300": lambda at, rng: (rng.random(len(at)) < 0.3, 1e300),
        "a burst of 1,000 claims -1e9": lambda at, rng: ((np.arange(len(at)) // 1000) == 1, -1e9),
        "60% of the traffic claims -1e9": lambda at, rng: (rng.random(len(at)) < 0.6, -1e9),
    }
    for load in LOADS:
        for name, attack in attacks.items():
            cells: list[list[tuple[float, float]]] = [[], [], []]
            for seed in SEEDS:
                requests = workload(load, seed)
                rng = np.random.default_rng(seed + 50)
                bad, claim = attack(requests[0], rng)
                honest = np.exp(5 + 0.8 * emulate_scores(requests[2], 0.5, seed + 10)[0])
                scores = np.where(bad, claim, honest)
                who = np.where(
                    bad, "liar", np.char.add("client ", rng.integers(20, size=len(bad)).astype(str))
                )
                clients = {f"r{number}": str(one) for number, one in enumerate(who)}
                base = latencies(requests, None)
                for cell, judge in zip(cells, (None, ScoreJudge(), Names(clients)), strict=True):
                    took = latencies(requests, scores, judge)
                    cell.append(
                        (
                            float(took[~bad].mean() / base[~bad].mean()),
                            float(took[bad].mean() / base[bad].mean()),
                        )
                    )
            print(f"| {load} | {name} | {' | '.join(map(_worst, cells))} |", flush=True)


def _ratios(took: Floats, base: Floats) -> tuple[float, float]:
    return float(took.mean() / base.mean()), float(np.quantile(took, 0.99) / np.quantile(base, 0.99))


def _worst(pairs: list[tuple[float, float]]) -> str:
    return f"{max(first for first, _ in pairs):.2f}, {max(second for _, second in pairs):.2f}"


if __name__ == "__main__":
    harm()
    lies()
