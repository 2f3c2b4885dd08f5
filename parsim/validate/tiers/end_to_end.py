"""PARS for real, from prompts to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from parsim.files import check_target, replacing
from parsim.options_model import command_line
from parsim.progress import Bar, progress_bar
from parsim.validate.calibration.calibrate import calibrate_engine
from parsim.validate.calibration.engine_file import write_engine
from parsim.validate.calibration.noise import check_noise
from parsim.validate.calibration.probe import Probe, Timed
from parsim.validate.live.live_engine import on_cuda, require_vllm
from parsim.validate.live.record import Recording, read_prompts, record, resume
from parsim.validate.live.smollm import prepare_model
from parsim.validate.live.workload import OVERLOAD, load_under_pressure
from parsim.validate.report.policy_report import PolicyReport
from parsim.validate.tiers.end_to_end_stages import (
    OBJECTIVES,
    Prompts,
    Scored,
    pair_of,
    policies,
    score_prompts,
    serve_policy,
    split_lengths,
    train_predictors,
)
from parsim.validate.tiers.engine import add_outcome
from parsim.validate.tiers.options import EndToEnd
from parsim.validate.tiers.policies import Machine, Outcome, open_engine


def run_end_to_end(run: EndToEnd) -> PolicyReport:
    """Record, train, serve, compare, write.

    Raises:
        UserError: vLLM or a package is missing, or the prompts are none.
    """
    from rich.console import Console
    from transformers import AutoTokenizer

    console = Console(soft_wrap=True)
    check_target(run.folder / "validation.html")
    require_vllm()
    clock: Any = run.clock
    model = str(prepare_model()) if run.model == "smollm2" else run.model
    tokenizer = AutoTokenizer.from_pretrained(model)
    with progress_bar(console) as bar:
        lengths = run.lengths or _record(run, model, bar)
        train, test = split_lengths(lengths, tokenizer, run.folder)
        predictors = train_predictors(train, run.folder, run.epochs, lambda what: bar.begin(what, 1))
        prompts = Prompts.read(test, tokenizer, run.requests, run.seed)
        scored = score_prompts(prompts, predictors, clock)
        machine, prompts, load = _started(run, model, prompts, bar)
        sample = [(len(ids), length) for ids, length in zip(prompts.token_ids, prompts.recorded, strict=True)]
        config = machine.config[clock]
        probe = Probe(
            machine.engine, config, clock, machine.vocabulary, sample, config.max_num_seqs, run.temperature
        )
        runs = _serve(run, probe, prompts, predictors, bar)
    pairs = [pair_of(p, runs[p.name], prompts, scored, probe) for p in policies()]
    every = [timed.served for name in runs for timed in runs[name]]
    noise = check_noise(every, config.step_time, clock, on_cpu=not on_cuda())
    report = PolicyReport(
        "PARS for real: a model that stops by itself", command_line("validate end-to-end", run)
    )
    steady = [pair_of(p, runs[p.name], prompts, scored, probe, steady=True) for p in policies()]
    add_outcome(report, machine, Outcome(clock, pairs, steady, every, len(every), noise))
    notes = _notes(run, lengths, train, prompts, scored, runs, load)
    page = report.write(run.folder, notes, {"tau_b": scored.tau, "load": load, "machine": machine.name})
    write_engine(config, run.folder / "engine.yaml", config.step_time.fit_error)
    report.print(console)
    for line in notes:
        console.print(f"note: {line}", style="dim", highlight=False)
    console.print(f"report: {page}", highlight=False)
    return report


def _record(run: EndToEnd, model: str, bar: Bar) -> Path:
    from parsim.errors import UserError

    out = run.folder / "lengths.jsonl"
    recording = Recording(model, 1, run.temperature, run.max_tokens, 64, run.seed)
    if run.prompts is None:
        raise UserError(
            "nothing to serve: give prompts to record, or lengths that `parsim validate record` wrote"
        )
    wanted = read_prompts(run.prompts, run.recorded)
    done = len(resume(out, recording.stamp()))
    bar.begin("recording natural lengths", len(wanted), done)
    record(wanted, out, recording, lambda n, tokens: bar.advance(n))
    return out


def _started(run: EndToEnd, model: str, prompts: Prompts, bar: Bar) -> tuple[Machine, Prompts, float]:
    """The engine, calibrated on lengths like those to come, and the load at which FCFS queues."""
    bar.begin("starting the engine", 1)
    longest = max(len(ids) for ids in prompts.token_ids) + run.max_tokens
    settings = {
        "max_num_seqs": run.max_num_seqs,
        "max_num_batched_tokens": 512,
        "max_model_len": -(-longest // 32) * 32,
        "block_size": 32,
        "num_gpu_blocks": run.max_num_seqs * (-(-longest // 32)) // 2,
    }
    engine, name, _ = open_engine(model, settings, dummy=False, seed=run.seed)
    sample = [(len(ids), length) for ids, length in zip(prompts.token_ids, prompts.recorded, strict=True)]
    clock: Any = run.clock
    config, calibration = calibrate_engine(
        engine,
        name,
        clock,
        1000,
        sample,
        bar.reach,
        run.seed,
        run.temperature,
    )
    load = load_under_pressure(prompts.trace(prompts.recorded, {}), config)
    return Machine(engine, name, 1000, {clock: config}, {clock: calibration}), prompts.at_load(load), load


def _serve(
    run: EndToEnd, probe: Probe, prompts: Prompts, predictors: dict[str, Path], bar: Bar
) -> dict[str, list[Timed]]:
    runs: dict[str, list[Timed]] = {policy.name: [] for policy in policies()}
    bar.begin("serving", len(runs) * run.repeats * len(prompts.request_id))
    for repeat in range(run.repeats):
        for policy in policies():
            timed = probe.around(
                lambda policy=policy, repeat=repeat: serve_policy(  # type: ignore[misc]
                    probe.engine,
                    prompts,
                    policy,
                    predictors,
                    run.clock,
                    run.temperature,
                    lambda count: bar.advance(count, f"serving, {policy.name}, repeat {repeat + 1}"),
                )
            )
            runs[policy.name].append(timed)
            frames = {"requests": timed.served.requests, "steps": timed.served.steps}
            for suffix, frame in frames.items():
                with replacing(run.folder / "runs" / f"{policy.name}-{repeat}-{suffix}.parquet") as path:
                    frame.write_parquet(path)
    return runs


def _notes(
    run: EndToEnd,
    lengths: Path,
    train: Path,
    prompts: Prompts,
    scored: Scored,
    runs: dict[str, list[Timed]],
    load: float,
) -> list[str]:
    frame = pl.read_ndjson(lengths)
    real = pl.Series(
        [
            t
            for name in runs
            if name != "oracle"
            for s in runs[name]
            for t in s.served.requests["output_tokens"]
        ]
    )
    late = {name: runs[name][0].served.scorer for name in OBJECTIVES}
    return [
        f"{frame.height} responses recorded from {frame['model'][0]} at temperature {run.temperature:g}, mean "
        f"{frame['output_tokens'].to_numpy().mean():.0f} tokens, {frame['censored'].to_numpy().mean():.1%} cut at "
        f"{run.max_tokens}; predictors trained on {pl.read_ndjson(train).height} of them, {run.epochs} epochs",
        f"{len(prompts.request_id)} prompts that no predictor saw, at load {load:.3g} (they arrive "
        f"{OVERLOAD:g} times faster than the engine serves them); responses end by themselves (mean "
        f"{real.to_numpy().mean():.0f} tokens), but the Oracle's, which are forced to the lengths recorded before",
        "Kendall tau-b with the recorded lengths on those prompts: "
        + ", ".join(f"{name} {tau:.2f}" for name, tau in scored.tau.items()),
        f"scored inside the engine: {scored.cost.base_s * 1e3:.3g} ms of CPU a batch and "
        f"{scored.cost.token_s * 1e3:.3g} ms a token, measured; on the CPU clock that is the engine's own time. The "
        "model as calibrated is charged the same; "
        + ", ".join(
            f"{name} {counts.get('scorer_failures', 0):.0f} failures so far" for name, counts in late.items()
        ),
        "every run draws its own responses, so that the lengths differ between policies; the model is given the "
        "lengths that each run really generated",
    ]
