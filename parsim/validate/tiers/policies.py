"""The chosen policies on a real vLLM engine in this process, against the model calibrated on the same machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from parsim.engine import EngineConfig
from parsim.engine.scoring_cost import ScoringCost
from parsim.errors import UserError
from parsim.scheduler.policy import Policy
from parsim.scheduler.settings import SCHEDULER_CLASS
from parsim.simulation import simulate
from parsim.traces import Trace
from parsim.validate.calibration.calibrate import LIKE_THE_TRACE_SIZE, Calibration, calibrate_engine
from parsim.validate.calibration.noise import Noise, check_noise, speed
from parsim.validate.calibration.probe import Probe, Timed
from parsim.validate.live.architectures import architectures, model_folder
from parsim.validate.live.clock import ClockName
from parsim.validate.live.live_engine import on_cuda, start_engine
from parsim.validate.live.serving import BUSY, TRIES, Job, Served, random_prompt, serve, undisturbed
from parsim.validate.report.comparison import Pair

CPU_SETTINGS: dict[str, Any] = {
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "max_model_len": 1024,
    "block_size": 32,
}
"""What the tiny model on a CPU serves with, so that 300 requests queue and end within a minute."""

GPU_SETTINGS: dict[str, Any] = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "max_model_len": 4096,
    "block_size": 16,
    "num_gpu_blocks": 1200,
}
"""What a GPU serves with: few enough sequences and blocks that some hundred requests queue and are preempted."""


@dataclass(frozen=True)
class Machine:
    """A started engine and what the model knows of it.

    Attributes:
        engine: vLLM's `LLMEngine`, idle.
        name: model and device in words.
        vocabulary: prompts are drawn from token ids below it.
        config, calibration: by clock: settings as resolved with the step time fitted on that clock.
    """

    engine: Any
    name: str
    vocabulary: int
    config: Mapping[ClockName, EngineConfig]
    calibration: Mapping[ClockName, Calibration]


def open_engine(
    model: str, settings: Mapping[str, Any], *, dummy: bool, seed: int = 0
) -> tuple[Any, str, int]:
    """Start `model` with `ParsScheduler`; returns the engine, its name in words and its vocabulary's size.

    Args:
        model: folder, hub name, or the name of an architecture (which implies random weights).
    """
    folder: str | Path = model
    known = model in architectures()
    if not Path(model).is_dir() and (known or "/" not in model):
        folder = model_folder(model)
    engine = start_engine(folder, settings, dummy=dummy or known, seed=seed, scheduler_cls=SCHEDULER_CLASS)
    device = "CUDA" if on_cuda() else "CPU"
    weights = "random weights" if dummy or known else "real weights"
    return engine, f"{Path(model).name} ({weights}) on {device}", int(engine.model_config.get_vocab_size())


def calibrate_machine(
    engine: Any,
    name: str,
    vocabulary: int,
    clocks: Sequence[ClockName],
    sample: Sequence[tuple[int, int]],
    advance: Callable[[int, int], None] = lambda done, waves: None,
    seed: int = 0,
) -> Machine:
    """Calibrate the engine on each clock."""
    configs, calibrations = {}, {}
    for clock in clocks:
        configs[clock], calibrations[clock] = calibrate_engine(
            engine, name, clock, vocabulary, sample, advance, seed
        )
    return Machine(engine, name, vocabulary, configs, calibrations)


@dataclass(frozen=True)
class Outcome:
    """All runs on one clock.

    Attributes:
        clock: of the times.
        pairs: real and model, policy by policy.
        steady: the same, the model given the machine's speed while the run ran instead of that around it.
        runs: in the order in which they were made.
        tries: how many it took: one that other processes disturbed is made again.
        noise: whether the machine spoilt them.
    """

    clock: ClockName
    pairs: list[Pair]
    steady: list[Pair]
    runs: list[Served]
    tries: int
    noise: Noise


def compare_policies(
    machine: Machine,
    trace: Trace,
    policies: Sequence[Policy],
    *,
    clock: ClockName,
    repeats: int,
    keep: Callable[[str, int, Served], None] = lambda policy, repeat, served: None,
    advance: Callable[[int, str], None] = lambda finished, what: None,
) -> Outcome:
    """Serve `trace` under each policy, `repeats` times, in an order that rotates; the model replays the same.

    On a CPU, whose speed changes with what else runs there, a wave of other requests is measured before and after each
    run, and the model of the run is the calibrated one at that speed.

    Args:
        keep: called after each run, so that an interrupted comparison loses only the run at hand.
    """
    made: dict[str, list[_Made]] = {policy.name: [] for policy in policies}
    runs: list[Served] = []
    config = machine.config[clock]
    tries = 0
    sample = list(trace.frame.select("prompt_tokens", "output_tokens").iter_rows())
    probe = Probe(
        machine.engine, config, clock, machine.vocabulary, sample, LIKE_THE_TRACE_SIZE * config.max_num_seqs
    )
    for repeat in range(repeats):
        turn = repeat % len(policies)
        for policy in [*policies[turn:], *policies[:turn]]:
            jobs = make_jobs(trace, policy, machine.vocabulary)
            what = f"{policy.name}, {clock} clock, repeat {repeat + 1} of {repeats}"

            def run(jobs: list[Job] = jobs, policy: Policy = policy, what: str = what) -> Served:
                return serve(
                    machine.engine, jobs, policy, clock=clock, advance=lambda count: advance(count, what)
                )

            timed, tried = undisturbed(
                lambda run=run: probe.around(run),  # type: ignore[misc]
                lambda timed: timed.disturbance,
                1 if on_cuda() else TRIES,
            )
            tries += tried
            runs.append(timed.served)
            made[policy.name].append(_made(timed, trace, probe, policy))
            keep(policy.name, repeat, timed.served)
    pairs, steady = zip(*(_pairs(policy, made[policy.name]) for policy in policies), strict=True)
    step_time = machine.config[clock].step_time
    return Outcome(
        clock,
        list(pairs),
        list(steady),
        runs,
        tries,
        check_noise(runs, step_time, clock, on_cpu=not on_cuda()),
    )


@dataclass(frozen=True)
class _Made:
    """One run and what the model says of it: at the speed around it, and at the run's own."""

    timed: Timed
    model: pl.DataFrame
    steady: pl.DataFrame


def _made(timed: Timed, trace: Trace, probe: Probe, policy: Policy) -> _Made:
    served, step_time = timed.served, probe.config.step_time
    return _Made(
        timed,
        modelled(trace, probe.at(timed.speed), policy),
        modelled(trace, probe.at(speed(served.steps, step_time, probe.clock)), policy),
    )


def _pairs(policy: Policy, made: Sequence[_Made]) -> tuple[Pair, Pair]:
    """The repeats of one policy, without those that other processes disturbed where others were left alone."""
    calm = [run for run in made if on_cuda() or run.timed.disturbance <= BUSY - 1] or made
    real = [run.timed.served.requests for run in calm]
    return (
        Pair(policy.name, policy.label, real, [run.model for run in calm]),
        Pair(policy.name, policy.label, real, [run.steady for run in calm]),
    )


def modelled(
    trace: Trace, config: EngineConfig, policy: Policy, scoring: ScoringCost | None = None
) -> pl.DataFrame:
    """What the simulator says of the same requests; scores that are emulated stand in a column by now.

    Args:
        scoring: what a scorer inside the engine costs; None where the requests carry their scores.
    """
    return simulate(trace, config, replace(policy, emulated_tau=None), scoring=scoring).requests


def make_jobs(trace: Trace, policy: Policy, vocabulary: int) -> list[Job]:
    """The trace's requests for the engine, with the scores that the policy ranks by."""
    frame = trace.frame
    if policy.score is not None and policy.score not in frame.columns:
        raise UserError(f"trace {trace.name}: no column {policy.score} for policy {policy.name}")
    scores = frame[policy.score].cast(pl.Float64).to_list() if policy.score else [None] * frame.height
    return [
        Job(request_id, arrival, random_prompt(request_id, prompt, vocabulary), output, score)
        for (request_id, arrival, prompt, output), score in zip(
            frame.select("request_id", "arrival_s", "prompt_tokens", "output_tokens").iter_rows(),
            scores,
            strict=True,
        )
    ]
