"""`parsim validate parity`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.defaults import DEFAULT_ENGINE
from parsim.errors import UserError
from parsim.options import Engine, Fields, Seed, Victim

if TYPE_CHECKING:
    from rich.console import Console

    from parsim.validate.parity.check import Checked


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command()(parity)


def parity(
    trace: Annotated[
        str | None,
        typer.Argument(help="Trace file, or `bundled`; random cases if left out."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy; repeatable. With a trace fcfs and pars, else all, if left out."),
    ] = None,
    cases: Annotated[int, typer.Option(min=1, help="Random cases to draw.")] = 1000,
    seed: Seed = 0,
    requests: Annotated[int, typer.Option(min=1, help="Requests of the trace, from its start.")] = 2000,
    engine: Engine = DEFAULT_ENGINE,
    set_: Fields = None,
    load: Annotated[float, typer.Option(help="Arrivals of the trace come this many times faster.")] = 1.0,
    victim: Victim = None,
    replay: Annotated[
        Path | None, typer.Option(help="Run the case in this file, as a failure printed it.")
    ] = None,
    vllm_version_info: Annotated[
        bool, typer.Option("--vllm-version-info", help="Say which vLLM is here and what was tested; exit.")
    ] = False,
) -> None:
    """Drive vLLM's own scheduler and the simulated engine with the same requests; every step must be equal.

    Exits with 1, and shows the first difference, if one is not.
    """
    from rich.console import Console

    from parsim.validate.live.live_engine import require_vllm

    console = Console(soft_wrap=True)
    require_vllm()
    if vllm_version_info:
        _print_versions(console)
    elif replay is not None:
        _replay(console, replay)
    elif trace is not None:
        _trace(console, trace, policy or ["fcfs", "pars"], engine, set_ or [], victim, requests, load, seed)
    else:
        _random(console, cases, seed, policy)


def _random(console: Console, cases: int, seed: int, policies: list[str] | None) -> None:
    from parsim.options import chosen_policy
    from parsim.progress import progress_bar
    from parsim.validate.parity.search import POLICY_NAMES, Tally, search

    names = tuple(chosen_policy(name, None, None).name for name in policies or POLICY_NAMES)
    tally = Tally()
    with progress_bar(console) as bar:
        bar.begin("random cases", cases)

        def passed(checked: Checked) -> None:
            tally.add(checked)
            bar.advance()

        failed = search(cases, seed, names, passed)
    console.print(
        f"{tally.cases:,} random cases (seed {seed}; {', '.join(names)}): {tally.steps:,} of {tally.steps:,} "
        f"steps equal, {tally.preemptions:,} preemptions in {tally.preempting_cases:,} of the cases"
    )
    if failed is not None:
        _fail(console, failed)


def _trace(
    console: Console,
    path: str,
    policies: list[str],
    engine_name: str,
    settings: list[str],
    victim: str | None,
    requests: int,
    load: float,
    seed: int,
) -> None:
    from statistics import median

    from parsim.engine.presets.load import load_engine
    from parsim.options import chosen_policy, pairs
    from parsim.traces import bundled_trace, read_trace
    from parsim.validate.parity.check import check
    from parsim.validate.parity.from_trace import case_from_trace, tight_blocks
    from parsim.validate.parity.model import simulate_case

    trace = bundled_trace() if path == "bundled" else read_trace(path)
    overrides = pairs("--set", settings)
    chosen = [chosen_policy(name, None, victim, trace.score_names) for name in policies]
    engine = load_engine(engine_name, overrides)
    if "num_gpu_blocks" not in overrides:
        blocks = min(engine.num_gpu_blocks, tight_blocks(trace, engine.block_size, requests))
        engine = load_engine(engine_name, {**overrides, "num_gpu_blocks": blocks})
        console.print(
            f"num_gpu_blocks {blocks:,}, so that memory is short (--set num_gpu_blocks=N for another)"
        )
    for policy in chosen:
        case, note = case_from_trace(trace, engine, policy, requests, load, seed)
        with console.status(f"{policy.name}: {len(case.requests):,} requests through vLLM's scheduler"):
            checked = check(case)
        steps = len(checked.vllm.steps)
        if not steps:
            raise UserError(f"{trace.name}: no request fits this engine, nothing to compare; set more blocks")
        model_s = median([checked.fast.cpu_s, *(simulate_case(case, steps=False).cpu_s for _ in range(4))])
        if checked.difference is None:
            console.print(
                f"{trace.name}, {policy.name}, {len(case.requests):,} requests: {steps:,} of {steps:,} steps equal, "
                f"{checked.vllm.preemptions:,} preemptions; vLLM's scheduler {checked.vllm.cpu_s:.2f} CPU-s, "
                f"the simulator {model_s:.3f} CPU-s: {checked.vllm.cpu_s / model_s:,.0f} times faster"
                + (f" ({note})" if note else "")
            )
        else:
            _fail(console, checked)


def _replay(console: Console, path: Path) -> None:
    from pydantic import ValidationError

    from parsim.validate.parity.case import Case
    from parsim.validate.parity.check import check

    try:
        case = Case.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        raise UserError(f"{path}: not a parity case ({error.error_count()} problems)") from error
    checked = check(case)
    if checked.difference is not None:
        _fail(console, checked)
    console.print(f"{path}: {len(checked.vllm.steps):,} of {len(checked.vllm.steps):,} steps equal")


def _fail(console: Console, checked: Checked) -> None:
    """Show the difference, leave the case where it can be replayed, and exit with 1."""
    from parsim.files import replacing
    from parsim.validate.parity.compare import show_difference

    assert checked.difference is not None
    show_difference(console, checked.case, checked.difference)
    path = Path("parity-failure.json")
    with replacing(path) as part:
        part.write_text(checked.case.model_dump_json(indent=1), encoding="utf-8")
    console.print(f"the case is in {path}: parsim validate parity --replay {path}")
    raise typer.Exit(1)


def _print_versions(console: Console) -> None:
    import inspect

    from parsim.validate.parity.bare import quiet_vllm

    quiet_vllm()
    from vllm.v1.core.sched.scheduler import Scheduler

    from parsim.scheduler.vllm_version import METHODS, TESTED_VERSIONS, installed_version

    version = installed_version()
    known = "tested" if version in TESTED_VERSIONS else "NOT tested"
    console.print(f"vLLM {version}: {known} with this scheduler (tested: {', '.join(TESTED_VERSIONS)})")
    for name in METHODS:
        method = getattr(Scheduler, name, None)
        console.print(
            f"  Scheduler.{name}{inspect.signature(method) if method else ' is MISSING'}", highlight=False
        )
