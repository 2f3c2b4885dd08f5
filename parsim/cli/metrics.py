"""`parsim metrics`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(metrics)


def metrics() -> None:
    """List every metric with its unit and formula."""
    from rich.console import Console
    from rich.table import Table

    from parsim.metrics import METRICS

    table = Table("metric", "unit", "better", "formula")
    for metric in METRICS.values():
        table.add_row(metric.name, metric.unit, metric.better, metric.formula)
    Console().print(table)
