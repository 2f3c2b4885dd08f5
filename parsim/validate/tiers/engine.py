"""The engine tier from a command's options to a report on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from parsim.errors import UserError
from parsim.files import check_target, replacing
from parsim.options_model import command_line
from parsim.progress import Bar, progress_bar
from parsim.scheduler.policy import parse_policy
from parsim.traces import Trace, bundled_trace, read_trace
from parsim.validate.calibration.engine_file import write_engine
from parsim.validate.calibration.noise import residuals
from parsim.validate.live.clock import ClockName
from parsim.validate.live.engine_settings import engine_settings
from parsim.validate.live.live_engine import on_cuda, require_vllm
from parsim.validate.live.serving import BUSY, TRIES, Served
from parsim.validate.live.workload import (
    OVERLOAD,
    at_load,
    blocks_under_pressure,
    cut,
    load_under_pressure,
    scored,
)
from parsim.validate.report.policy_report import PolicyReport
from parsim.validate.tiers.options import EngineRun
from parsim.validate.tiers.policies import (
    CPU_SETTINGS,
    GPU_SETTINGS,
    Machine,
    Outcome,
    calibrate_machine,
    compare_policies,
    open_engine,
)


def run_engine(run: EngineRun) -> PolicyReport:
    """Start, calibrate, serve, compare, write.

    Raises:
        UserError: vLLM is missing, or an option names nothing that is known.
    """
    from rich.console import Console

    console = Console(soft_wrap=True)
    require_vllm()
    clocks = _clocks(run.clock)
    whole = bundled_trace() if run.trace == "bundled" else read_trace(run.trace)
    policies = [parse_policy(name, whole.score_names) for name in run.policies]
    settings = engine_settings(run.settings, GPU_SETTINGS if on_cuda() else CPU_SETTINGS)
    trace, policies, notes = scored(
        cut(whole, run.requests, settings["max_model_len"], run.longest_output), policies, run.taus, run.seed
    )
    if run.load is not None:
        at_load(trace, run.load)  # refused before vLLM starts, not after
    check_target(run.folder / "validation.html")
    with progress_bar(console) as bar:
        machine, load, chosen = _tuned(run, settings, trace, clocks, bar)
        trace = at_load(trace, load)
        notes = [*run.notes, *_words(machine, clocks[0], trace, load), *chosen, *notes]
        report = PolicyReport(
            f"{machine.name}: {len(policies)} policies on vLLM", command_line("validate engine", run)
        )
        for clock in clocks:
            bar.begin(f"{clock} clock", len(policies) * run.repeats * len(trace))
            outcome = compare_policies(
                machine,
                trace,
                policies,
                clock=clock,
                repeats=run.repeats,
                keep=lambda name, repeat, served, c=clock: _keep(run.folder, c, name, repeat, served),  # type: ignore[misc]
                advance=bar.advance,
            )
            add_outcome(report, machine, outcome)
    for clock in clocks:
        write_engine(
            machine.config[clock],
            run.folder / f"engine-{clock}.yaml",
            machine.calibration[clock].step_time.fit_error,
        )
    page = report.write(run.folder, notes, {"load": load, "requests": len(trace), "machine": machine.name})
    report.print(console)
    for line in notes:
        console.print(f"note: {line}", style="dim", highlight=False)
    console.print(f"report: {page}", highlight=False)
    return report


def add_outcome(report: PolicyReport, machine: Machine, outcome: Outcome) -> None:
    """One clock's comparison with its residuals and noise."""
    calibration = machine.calibration[outcome.clock]
    error = calibration.step_time.fit_error or {}
    report.add(
        outcome.clock,
        outcome.pairs,
        [
            *outcome.noise.notes,
            "On a CPU the calibrated model is taken at the machine's speed around each run, measured with a wave of "
            "other requests before and after it. Both clocks stand still while requests are handed over: a server does "
            "that in another process.",
            f"{len(outcome.runs)} runs kept of {outcome.tries} made: one whose steps took over {BUSY:g} times their "
            f"CPU time on the wall clock, or around which the speed changed as much, is made again, at most {TRIES} "
            "times, and left out in the end where other repeats of its policy were undisturbed",
        ],
        residuals(outcome.runs, calibration.step_time, outcome.clock),
        f"The step-time model was {calibration.step_time.provenance}; on held-out steps its median error is "
        f"{error.get('median_step', float('nan')):.1%} a step, {error.get('total', float('nan')):+.1%} over their sum. "
        "Shown are steps of the compared runs, which it never saw.",
        trusted=outcome.clock == "cpu" or not outcome.noise.spoilt,
    )
    report.add(
        f"{outcome.clock}-steady",
        outcome.steady,
        [
            "The machine's speed changes from run to run. Here the model is given the measured over the predicted time "
            "of all steps of each run, so that what is left is the error of the scheduling."
        ],
    )


def _tuned(
    run: EngineRun, settings: dict[str, Any], trace: Trace, clocks: list[ClockName], bar: Bar
) -> tuple[Machine, float, list[str]]:
    """The engine, calibrated, at a load and with a KV cache that make a queue; notes say what was chosen.

    The cache's size is chosen from a first calibration with a roomy one, so the engine is started twice where it
    is not given.
    """
    sample = list(trace.frame.select("prompt_tokens", "output_tokens").iter_rows())
    notes = []

    def start(extra: dict[str, Any], what: str, clocks: list[ClockName]) -> Machine:
        bar.begin(what, 1)
        engine, name, vocabulary = open_engine(run.model, settings | extra, dummy=run.dummy, seed=run.seed)
        return calibrate_machine(engine, name, vocabulary, clocks, sample, bar.reach, run.seed)

    roomy = {} if "num_gpu_blocks" in settings else {"num_gpu_blocks": 4096}
    first = clocks[-1:] if roomy else clocks
    machine = start(roomy, "starting and calibrating the engine", first)
    config = machine.config[clocks[-1]]
    load = run.load
    if load is None:
        load = load_under_pressure(trace, config)
    if roomy:
        blocks = blocks_under_pressure(trace, config, load)
        notes.append(
            f"num_gpu_blocks {blocks} chosen as 60% of what FCFS would hold, so that requests are preempted, "
            "but no less than one request of max_model_len needs"
        )
        del machine
        what = "starting and calibrating the engine with a tight KV cache"
        machine = start({"num_gpu_blocks": blocks}, what, clocks)
        if run.load is None:
            load = load_under_pressure(trace, machine.config[clocks[-1]])
    if run.load is None:
        notes.append(
            f"load {load:.3g} chosen so that requests arrive {OVERLOAD:g} times faster than the engine serves them"
        )
    return machine, load, notes


def _clocks(text: str) -> list[ClockName]:
    names = ["wall", "cpu"] if text == "both" else [text]
    if any(name not in get_args(ClockName) for name in names):
        raise UserError(f"clock {text!r}: must be wall, cpu or both")
    if on_cuda() and "cpu" in names:
        if text == "cpu":
            raise UserError("clock cpu: on a GPU the CPU only waits; use the wall clock")
        names = ["wall"]
    return names  # type: ignore[return-value]


def _words(machine: Machine, clock: ClockName, trace: Trace, load: float) -> list[str]:
    config = machine.config[clock]
    fields = config.model_dump(exclude={"step_time", "name", "provenance"})
    rate = (len(trace) - 1) / max(float(trace.frame["arrival_s"].to_numpy().max()), 1e-9)
    return [
        f"{machine.name}; settings as vLLM resolved them: {', '.join(f'{k} {v}' for k, v in fields.items())}",
        f"{len(trace)} requests of {trace.name} at load {load:.3g} ({rate:.3g} requests/s), responses forced to their "
        "recorded lengths; prompts are random token ids of the recorded lengths",
    ]


def _keep(folder: Path, clock: str, policy: str, repeat: int, served: Served) -> None:
    stem = folder / "runs" / f"{clock}-{policy}-{repeat}"
    for suffix, frame in (("requests", served.requests), ("steps", served.steps)):
        with replacing(stem.with_name(f"{stem.name}-{suffix}.parquet")) as path:
            frame.write_parquet(path)
