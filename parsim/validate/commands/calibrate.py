"""`parsim validate calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parsim.errors import UserError
from parsim.options import Dummy, Fields, Seed


def register(app: typer.Typer) -> None:
    """Add the command to `parsim validate`."""
    app.command("calibrate")(calibrate)


def calibrate(
    source: Annotated[
        Path | None,
        typer.Argument(
            help="A step log (Parquet) or a recording; the engine at hand is measured if left out."
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="To measure: folder, hub name or architecture (random weights). To fit a recording: its preset."
        ),
    ] = "",
    dummy: Dummy = False,
    trace: Annotated[
        str | None,
        typer.Option(
            help="Measure also with lengths like this trace's (or `bundled`): where it has to be right."
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="For a step log: the engine file or preset whose settings it had.")
    ] = None,
    clock: Annotated[str, typer.Option(help="wall, cpu, or auto: cpu on a CPU engine.")] = "auto",
    gpu: Annotated[str | None, typer.Option(help="For a recording: the GPU preset.")] = None,
    set_: Fields = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Engine file to write; `--engine` accepts it.")] = Path(
        "engine.yaml"
    ),
) -> None:
    """Fit the step time of an engine and write an engine file with its held-out error."""
    from rich.console import Console

    from parsim.files import check_target
    from parsim.options import pairs
    from parsim.settings_file import setting
    from parsim.validate.calibration.engine_file import write_engine
    from parsim.validate.tiers.calibrate import from_engine, from_recording, from_step_log

    log = source is not None and source.suffix == ".parquet" and not (source.parent / "engine.json").is_file()
    what = "the engine at hand" if source is None else "a step log" if log else "a recording"
    idle = {"--engine": engine if not log else None, "--gpu": gpu if source is None or log else None}
    idle |= {"--model": model if log else None}
    if source is not None:
        idle |= {
            "--trace": trace,
            "--dummy": "yes" if dummy else None,
            "--clock": clock if clock != "auto" else None,
        }
    for option, given in idle.items():
        if given:
            raise UserError(f"{option}: says nothing of {what}; leave it out")
    check_target(out)
    if out.is_file() and not _is_engine(out):
        raise UserError(f"{out}: is there and is no engine file; name another one by --out")
    console = Console(soft_wrap=True)
    settings: dict[str, Any] = {k: setting(v) for k, v in pairs("--set", set_ or []).items()}
    if source is None:
        config = from_engine(
            model or "tiny", settings, dummy=dummy, trace=trace, clock=clock, seed=seed, console=console
        )
    elif log:
        config = from_step_log(source, engine, settings)
    else:
        config = from_recording(source, settings, gpu=gpu, model=model or None, seed=seed)
    write_engine(config, out, config.step_time.fit_error)
    step = config.step_time
    console.print(
        f"{out}: base {step.base_s * 1e3:.3g} ms, prefill {step.prefill_token_s * 1e6:.3g} us a token, decode "
        f"{step.decode_seq_s * 1e6:.3g} us a sequence, KV {step.kv_token_s * 1e9:.3g} ns a token, attention "
        f"{step.attention_pair_s * 1e9:.3g} ns a pair",
        highlight=False,
    )
    console.print(f"{step.provenance}", style="dim", highlight=False)
    for name, error in (step.fit_error or {}).items():
        console.print(f"held-out error, {name}: {error:+.2%}", highlight=False)


def _is_engine(file: Path) -> bool:
    from parsim.settings_file import read_settings

    try:
        return "step_time" in read_settings(file, "engine")
    except UserError:
        return False
