"""`parsim validate server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from parsim.options import Emulate, Fields, ReportFolder, Seed, TraceArgument


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("server")(server)


def server(
    trace: TraceArgument = "bundled",
    url: Annotated[
        str | None,
        typer.Option(help="A running server, without /v1; one is started for each policy if left out."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="To start: folder, hub name or architecture. With --url: the served name; its first if empty."
        ),
    ] = "",
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy; repeatable when servers are started. With --url: what it runs."),
    ] = None,
    requests: Annotated[int, typer.Option(min=2, help="Requests of the trace, from its start.")] = 150,
    load: Annotated[float, typer.Option(min=0.0, help="Arrivals come this many times faster.")] = 1.0,
    cancel_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of requests cut off by the client.")
    ] = 0.0,
    timeout_s: Annotated[
        float, typer.Option(min=0.1, help="A request that has not ended by then is a timeout.")
    ] = 600.0,
    engine: Annotated[
        str | None,
        typer.Option(help="Engine file or preset of the model; fitted to half of the FCFS run if left out."),
    ] = None,
    set_: Fields = None,
    emulate: Emulate = None,
    seed: Seed = 0,
    out: ReportFolder = None,
) -> None:
    """Replay a trace against a vLLM server over HTTP and compare it with the model.

    Exits with 1 if requests were lost; what ended is kept and reported.
    """
    from parsim.options import chosen_policy, emulated_taus, pairs
    from parsim.validate.tiers.server import ServerRun, run_server

    policies = tuple(chosen_policy(name, None, None) for name in policy or ["fcfs"])
    whole = run_server(
        ServerRun(
            folder=out or Path("reports") / "server",
            trace=trace,
            url=url.rstrip("/").removesuffix("/v1") if url else None,
            model=model,
            policies=policies,
            requests=requests,
            load=load,
            cancel_share=cancel_share,
            timeout_s=timeout_s,
            engine=engine,
            settings=pairs("--set", set_ or []),
            taus=emulated_taus(emulate or [], [one.name for one in policies]),
            seed=seed,
        )
    )
    if not whole:
        raise typer.Exit(1)
