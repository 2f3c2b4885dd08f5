"""`parsim validate engine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.options import Dummy, Emulate, Fields, Policies, Repeats, ReportFolder, Seed, TraceArgument


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("engine")(engine)


def engine(
    trace: TraceArgument = "bundled",
    model: Annotated[
        str,
        typer.Option(
            help="Folder or hub name of a model, or an architecture's name (random weights): tiny, ..."
        ),
    ] = "tiny",
    dummy: Dummy = False,
    policy: Policies = None,
    requests: Annotated[int, typer.Option(min=2, help="Requests of the trace, from its start.")] = 300,
    repeats: Repeats = 3,
    clock: Annotated[
        str, typer.Option(help="wall, cpu (CPU engines: unmoved by other load), or both.")
    ] = "both",
    load: Annotated[
        float | None,
        typer.Option(help="Arrivals come this many times faster; chosen so that a queue forms if left out."),
    ] = None,
    set_: Fields = None,
    longest_output: Annotated[
        int | None, typer.Option(min=1, help="Cut responses to this many tokens.")
    ] = None,
    emulate: Emulate = None,
    seed: Seed = 0,
    out: ReportFolder = None,
) -> None:
    """Serve a trace on a real vLLM engine under each policy and compare it with the calibrated model."""
    from parsim.options import emulated_taus, pairs
    from parsim.sweep.spec import DEFAULT_POLICIES
    from parsim.validate.tiers.engine import EngineRun, run_engine

    run_engine(
        EngineRun(
            trace=trace,
            model=model,
            dummy=dummy,
            policies=tuple(policy or ()),
            requests=requests,
            repeats=repeats,
            clock=clock,
            load=load,
            settings=pairs("--set", set_ or []),
            longest_output=longest_output,
            taus=emulated_taus(emulate or [], policy or DEFAULT_POLICIES),
            seed=seed,
            folder=out or Path("reports") / f"engine-{Path(model).name}",
        )
    )
