"""`parsim policies`."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(policies)


def policies() -> None:
    """List the policies: order, score column, guard and victim."""
    from rich.console import Console
    from rich.table import Table

    from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
    from parsim.scheduler.policy import POLICIES

    table = Table("policy", "order", "needs column", "guard", "victim", "what it does")
    for policy in POLICIES.values():
        guard = "-" if policy.starvation_threshold_s is None else f"{policy.starvation_threshold_s:g} s"
        table.add_row(
            policy.name, str(policy.order), policy.score or "-", guard, policy.victim, policy.summary
        )
    table.add_row(
        "emulated(tau=T)",
        "score",
        "-",
        f"{DEFAULT_STARVATION_THRESHOLD_S:g} s",
        "last",
        "an oracle degraded to Kendall tau-b T: no real predictor",
    )
    Console().print(table)
