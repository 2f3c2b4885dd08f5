"""Options that change nothing in the run that they are given for: named, so that nobody reads an effect into them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from parsim.simulation import Run
    from parsim.traces.trace import Trace


def idle_in(policy: str, *, emulated: bool) -> dict[str, str | None]:
    """Options of `parsim simulate` -> why they change nothing under this policy; None where they do."""
    return {
        "seed": None if emulated else "no scores are emulated",
        "starvation_threshold_s": "the first come is served first anyway" if policy == "fcfs" else None,
    }


def name_idle(context: typer.Context, idle: Mapping[str, str | None]) -> None:
    """Print a note for each option that was given on the command line and is idle.

    Args:
        idle: parameter's name -> why it changes nothing; None where it does.
    """
    for name, why in idle.items():
        source = context.get_parameter_source(name)
        if why is not None and source is not None and source.name == "COMMANDLINE":
            print(f"note: --{name.strip('_').replace('_', '-')} changes nothing: {why}", file=sys.stderr)


def say_early_turns(trace: Trace, run: Run) -> None:
    """Print how many turns of sessions an open-loop replay sent before the turn before them had ended."""
    from parsim.traces.sessions import early_turns

    if "session_id" not in trace.frame.columns:
        return
    rows = trace.frame.join(
        run.requests.select("request_id", "finish_s", at="arrival_s"), on="request_id", how="left"
    )
    early, later = early_turns(rows.with_columns(arrival_s="at"), rows["finish_s"])
    if later:
        print(
            f"note: open loop: {early:,} of {later:,} later turns of sessions arrive before the turn before them has "
            "ended",
            file=sys.stderr,
        )
