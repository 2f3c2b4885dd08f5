"""PARS for real, without a GPU: record a real model's lengths, train on them, and serve with what was learned.

Every stage leaves a file in one folder and is skipped when it is there, so that the command can be interrupted:
`lengths.jsonl` (recorded responses), `train.jsonl` and `test.jsonl` (split by prompt), `predictors/NAME`,
`runs/`, and the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from parsim.emulation import sampled_tau_b
from parsim.engine.scoring_cost import ScoringCost
from parsim.errors import UserError
from parsim.files import replacing
from parsim.predictor.corpora.corpus import read_table
from parsim.predictor.corpora.split import prompt_keys
from parsim.scheduler.policy import POLICIES, Policy
from parsim.scheduler.settings import PREDICTOR_VARIABLE
from parsim.traces import Trace
from parsim.validate.calibration.noise import speed
from parsim.validate.calibration.probe import Probe, Timed
from parsim.validate.live.clock import ClockName
from parsim.validate.live.record import chat_tokens
from parsim.validate.live.serving import Job, Served, serve
from parsim.validate.report.comparison import Pair
from parsim.validate.tiers.policies import modelled

SCORER = "parsim.predictor.scoring.scorer:create"
OBJECTIVES = {"pointwise": "pointwise", "listwise": "listwise", "pars": "pairwise"}
"""Policy -> training objective."""

POLICY_NAMES = ("fcfs", *OBJECTIVES, "oracle")
TEST_SHARE = 0.1


def split_lengths(lengths: Path, tokenizer: Any, folder: Path) -> tuple[Path, Path]:
    """Write `train.jsonl` and `test.jsonl`: 90% and 10% of the prompts, by a hash of the normalised prompt.

    The training prompts are written as the scorer in the engine will see them: the chat template applied, decoded.

    Raises:
        UserError: no recording of responses, or too few prompts to train and to serve.
    """
    frame = _recorded(lengths)
    frame = frame.with_columns(pl.Series("key", prompt_keys(frame["prompt"].to_list())))
    held_out = pl.col("key") % 1000 < round(1000 * TEST_SHARE)
    parts = {
        "train": frame.filter(~held_out),
        "test": frame.filter(held_out).unique("key", keep="first", maintain_order=True),
    }
    if parts["train"].height < 40 or parts["test"].height < 4:
        raise UserError(
            f"{lengths}: {frame.height} responses are too few to train predictors and to serve the rest"
        )
    seen = [
        {
            "id": row["id"],
            "prompt": tokenizer.decode(chat_tokens(tokenizer, row["prompt"]), skip_special_tokens=True),
            "output_tokens": row["output_tokens"],
            "censored": row["censored"],
            "model": row["model"],
        }
        for row in parts["train"].iter_rows(named=True)
    ]
    for name, rows in (("train", seen), ("test", parts["test"].drop("key").to_dicts())):
        with replacing(folder / f"{name}.jsonl") as path:
            path.write_text(
                "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
            )
    return folder / "train.jsonl", folder / "test.jsonl"


_RECORDED = {
    "id": pl.String,
    "prompt": pl.String,
    "model": pl.String,
    "output_tokens": pl.Int64,
    "censored": pl.Boolean,
}


def _recorded(lengths: Path) -> pl.DataFrame:
    """The responses that `parsim validate record` wrote."""
    frame = read_table(lengths)
    for name, kind in _RECORDED.items():
        found = frame.schema.get(name)
        if found != kind or frame[name].null_count():
            reason = "is missing" if found is None else f"holds {found}" if found != kind else "has gaps"
            raise UserError(
                f"{lengths}: column {name!r} {reason}, expected {kind} in every row; make the file with "
                "parsim validate record"
            )
    return frame


def train_predictors(train: Path, folder: Path, epochs: int, begin: Callable[[str], None]) -> dict[str, Path]:
    """A predictor for every learned policy, each by `parsim train`; those that are there are kept.

    Raises:
        UserError: a training run failed; its last line is shown.
    """
    made = {}
    for policy, objective in OBJECTIVES.items():
        out = folder / "predictors" / policy
        if not (out / "card.json").is_file():
            begin(f"training {policy}")
            command = [
                sys.executable,
                "-m",
                "parsim",
                "train",
                str(train),
                "--objective",
                objective,
                "--out",
                str(out),
            ]
            command += ["--epochs", str(epochs), "--name", policy, "--test-share", "0.02", "--quiet"]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                raise UserError(
                    f"training {policy} failed: {(run.stderr.strip().splitlines() or ['no message'])[-1]}"
                )
        made[policy] = out
    return made


@dataclass(frozen=True)
class Prompts:
    """The prompts to serve, in order of arrival.

    Attributes:
        request_id, token_ids, arrival_s, recorded: ids, templated prompts, when they come, lengths as recorded before.
        seen: the prompts as a scorer sees them.
        cap: responses are cut there.
    """

    request_id: list[str]
    token_ids: list[list[int]]
    arrival_s: list[float]
    recorded: list[int]
    seen: list[str]
    cap: int

    @classmethod
    def read(cls, test: Path, tokenizer: Any, requests: int | None, seed: int) -> Prompts:
        """The first `requests` test prompts (None: all), Poisson arrivals of one a second, to be sped up by a load."""
        rows = pl.read_ndjson(test)[:requests].to_dicts()
        ids = [chat_tokens(tokenizer, row["prompt"]) for row in rows]
        arrival = np.cumsum(np.random.default_rng(seed).exponential(1.0, len(rows)))
        return cls(
            [row["id"] for row in rows],
            ids,
            (arrival - arrival[0]).tolist(),
            [row["output_tokens"] for row in rows],
            [tokenizer.decode(i, skip_special_tokens=True) for i in ids],
            int(rows[0]["max_tokens"]),
        )

    def at_load(self, load: float) -> Prompts:
        """Arrivals come `load` times faster."""
        return replace(self, arrival_s=[t / load for t in self.arrival_s])

    def trace(self, output_tokens: Sequence[int], scores: Mapping[str, Sequence[float]]) -> Trace:
        """As a trace, with these lengths and scores."""
        columns: dict[str, Any] = {f"score.{name}": list(values) for name, values in scores.items()}
        frame = pl.DataFrame(
            {
                "request_id": self.request_id,
                "arrival_s": self.arrival_s,
                "prompt_tokens": [len(ids) for ids in self.token_ids],
                "output_tokens": list(output_tokens),
                **columns,
            }
        )
        return Trace(frame, {"name": "recorded prompts"})

    def jobs(self, policy: Policy) -> list[Job]:
        """For the engine: natural lengths up to the cap; the Oracle knows and forces the recorded ones."""
        oracle = policy.name == "oracle"
        return [
            Job(request_id, at, ids, length if oracle else self.cap, float(length) if oracle else None)
            for request_id, at, ids, length in zip(
                self.request_id, self.arrival_s, self.token_ids, self.recorded, strict=True
            )
        ]


@dataclass(frozen=True)
class Scored:
    """What a predictor says of the prompts to serve.

    Attributes:
        scores: by policy, one a prompt.
        tau: Kendall tau-b with the recorded lengths, by policy.
        cost: what a score costs inside the engine.
    """

    scores: dict[str, list[float]]
    tau: dict[str, float]
    cost: ScoringCost


def score_prompts(prompts: Prompts, predictors: dict[str, Path], clock: ClockName) -> Scored:
    """Scores outside the engine, for the model's replay and for tau, and their cost measured.

    On the CPU clock the scorer's time is the engine's too; on the wall clock it has a core of its own.
    """
    from parsim.predictor.scoring.cost import measure_cost
    from parsim.predictor.scoring.predictor import load_predictor

    scores = {
        name: load_predictor(str(path)).score(prompts.seen).tolist() for name, path in predictors.items()
    }
    lengths = np.array(prompts.recorded)
    cost = measure_cost(str(predictors["pars"])).model_copy(update={"shares_core": clock == "cpu"})
    taus = {name: sampled_tau_b(np.array(values), lengths) for name, values in scores.items()}
    return Scored(scores, taus, cost)


def serve_policy(
    engine: Any,
    prompts: Prompts,
    policy: Policy,
    predictors: dict[str, Path],
    clock: Any,
    temperature: float,
    advance: Callable[[int], None],
) -> Served:
    """One policy on the engine: the model stops by itself, a learned policy is scored inside the engine."""
    if policy.name in predictors:
        os.environ[PREDICTOR_VARIABLE] = str(predictors[policy.name])
    return serve(
        engine,
        prompts.jobs(policy),
        policy,
        clock=clock,
        lengths="forced" if policy.name == "oracle" else "natural",
        temperature=temperature,
        scorer=SCORER if policy.name in predictors else None,
        advance=advance,
    )


def pair_of(
    policy: Policy,
    runs: Sequence[Timed],
    prompts: Prompts,
    scored: Scored,
    probe: Probe,
    steady: bool = False,
) -> Pair:
    """Real and model of one policy; the model gets the lengths that each run generated, the machine's speed around it
    and the cost of scoring.

    With `steady` it gets each run's own speed, which holds what the scorer took from the engine on the CPU clock.
    """
    models = []
    for timed in runs:
        run = timed.served
        trace = prompts.trace(run.requests["output_tokens"].to_list(), scored.scores)
        factor = speed(run.steps, probe.config.step_time, probe.clock) if steady else timed.speed
        charged = scored.cost if not steady or probe.clock == "wall" else None
        models.append(modelled(trace, probe.at(factor), policy, charged))
    return Pair(policy.name, policy.label, [timed.served.requests for timed in runs], models)


def policies() -> list[Policy]:
    """FCFS, the three learned policies, and the Oracle."""
    return [POLICIES[name] for name in POLICY_NAMES]
