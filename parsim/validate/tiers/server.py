"""The server tier from a command's options to a report on disk."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from parsim.errors import UserError
from parsim.files import check_target
from parsim.options_model import command_line
from parsim.progress import progress_bar
from parsim.scheduler.policy import Policy
from parsim.settings_file import setting
from parsim.traces import Trace, bundled_trace, read_trace
from parsim.validate.live.architectures import architectures, model_folder
from parsim.validate.live.client import Target, replay
from parsim.validate.live.engine_settings import engine_settings
from parsim.validate.live.live_engine import on_cuda
from parsim.validate.live.server_process import running_server, server_facts
from parsim.validate.live.workload import at_load, cut, room_of, scored
from parsim.validate.report.policy_report import PolicyReport
from parsim.validate.tiers.options import ServerRun
from parsim.validate.tiers.policies import CPU_SETTINGS, make_jobs
from parsim.validate.tiers.server_pairs import PolicyRun, failures, keep, model_of, pair_of

VOCABULARY = 1000
"""Random prompts are drawn from token ids below it: every model has those."""


def run_server(run: ServerRun) -> bool:
    """Replay, compare, write; whether every request ended or was cancelled by the client.

    Raises:
        UserError: no server answers or comes up, or an option names nothing that is known.
    """
    console = Console(soft_wrap=True)
    if run.address is not None and len(run.policies) > 1:
        raise UserError("one server runs one policy; without its address a server is started for each")
    if run.address is None:
        defaults = {} if on_cuda() else CPU_SETTINGS | {"num_gpu_blocks": 256}
        settings = engine_settings(run.settings, defaults)
    else:
        settings = {name: setting(str(value)) for name, value in run.settings.items()}
    whole = bundled_trace() if run.trace == "bundled" else read_trace(run.trace)
    facts = server_facts(run.address) if run.address is not None else {}
    room = room_of({**facts, **settings}.get("max_model_len", 8192))
    trace, policies, notes = scored(cut(whole, run.requests, room), run.policies, run.taus, run.seed)
    trace = at_load(trace, run.load)
    check_target(run.folder / "validation.html")
    runs = [_serve(run, settings, trace, policy, console) for policy in policies]
    for served in runs:
        counts = ", ".join(f"{n} {status}" for status, n in served.counts.items())
        late = (served.requests["sent_s"] - served.requests["arrival_s"]).drop_nulls().to_numpy()
        notes.append(
            f"{served.policy.label}: {counts}; requests were sent at most {late.max(initial=0.0):.3f} s late"
        )
    lost = [line for served in runs for line in failures(served)]
    page = _report(run, settings, runs, [*lost, *notes], console)
    for line in lost:
        console.print(f"[red]lost:[/red] {line}", highlight=False)
    for line in notes:
        console.print(f"note: {line}", style="dim", highlight=False)
    console.print(f"report: {page}" if page else f"results: {run.folder}", highlight=False)
    return not lost


def _serve(
    run: ServerRun, settings: dict[str, Any], trace: Trace, policy: Policy, console: Console
) -> PolicyRun:
    """One policy's replay, kept on disk as soon as it ends."""
    jobs = make_jobs(trace, policy, VOCABULARY)
    if run.address is not None:
        context: Any = nullcontext(None)
    else:
        folder, dummy = _model(run.model or "tiny")
        log = run.folder / f"server-{policy.name}.log"
        context = running_server(folder, settings, policy, log, dummy=dummy, seed=run.seed)
    with progress_bar(console) as bar:
        bar.begin(f"{policy.name}: waiting for the server", 1)
        with context as server:
            url = run.address or server.url
            facts = server_facts(url)
            bar.begin(policy.name, len(jobs))
            name = run.model if run.address is not None else ""
            frame = replay(
                jobs,
                Target(url, name, run.timeout_s),
                cancel_share=run.cancel_share,
                seed=run.seed,
                advance=bar.advance,
            )
    served = PolicyRun(policy, frame, facts)
    keep(served, run.folder)
    return served


def _model(model: str) -> tuple[str | Path, bool]:
    if model in architectures():
        return model_folder(model), True
    return model, False


def _report(
    run: ServerRun, settings: Mapping[str, Any], runs: list[PolicyRun], notes: list[str], console: Console
) -> Path | None:
    """The page, or None where too little ended to compare anything."""
    usable = [served for served in runs if (served.requests["status"] == "ok").sum() >= 2]
    report = PolicyReport("Policies on a vLLM server", command_line("validate server", run))
    try:
        config, source = model_of(usable, run.engine, settings, run.seed)
    except UserError as error:
        console.print(f"no comparison: {error}", style="yellow", highlight=False)
        return None
    report.add(
        "wall",
        [pair_of(served, config) for served in usable],
        [source, "latencies are the client's: they hold the HTTP server's own time too"],
        trusted=not any(served.lost for served in runs),
    )
    page = report.write(run.folder, notes, {"counts": {served.policy.name: served.counts for served in runs}})
    report.print(console)
    return page
