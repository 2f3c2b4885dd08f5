"""`parsim engines`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(engines)


def engines() -> None:
    """List the engine presets MODEL-GPU: blocks, batch limits and step time of each."""
    from rich.console import Console
    from rich.table import Table

    from parsim.engine import load_engine, preset_names

    table = Table("engine", "num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "ms a step, at least")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in preset_names():
        engine = load_engine(name)
        table.add_row(
            name,
            f"{engine.num_gpu_blocks:,}",
            str(engine.max_num_seqs),
            str(engine.max_num_batched_tokens),
            f"{engine.step_time.least_s * 1e3:.3g}",
        )
    Console().print(table)
