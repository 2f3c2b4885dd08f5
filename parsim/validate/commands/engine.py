"""`parsim validate engine`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("engine")(engine)


def engine(
    trace: Annotated[str, typer.Argument(help="Trace file in any known format, or `bundled`.")] = "bundled",
    model: Annotated[
        str,
        typer.Option(
            help="Folder or hub name of a model, or an architecture's name (random weights): tiny, ..."
        ),
    ] = "tiny",
    dummy: Annotated[
        bool, typer.Option(help="Random weights of the model's shape; nothing is downloaded.")
    ] = False,
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy; repeatable. The default five if left out.")
    ] = None,
    requests: Annotated[int, typer.Option(min=2, help="Requests of the trace, from its start.")] = 300,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each policy.")] = 3,
    clock: Annotated[
        str, typer.Option(help="wall, cpu (CPU engines: unmoved by other load), or both.")
    ] = "both",
    load: Annotated[
        float | None,
        typer.Option(help="Arrivals come this many times faster; chosen so that a queue forms if left out."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="An engine field; repeatable.")
    ] = None,
    longest_output: Annotated[
        int | None, typer.Option(min=1, help="Cut responses to this many tokens.")
    ] = None,
    emulate: Annotated[
        list[str] | None,
        typer.Option(metavar="POLICY=TAU", help="Emulate a predictor that the trace has no scores of."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Of weights, emulated scores and calibration.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report; reports/engine-MODEL if left out.")
    ] = None,
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
