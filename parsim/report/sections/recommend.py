"""Every configuration tried, the Pareto front, and the chosen one."""

from __future__ import annotations

import polars as pl

from parsim.metrics import METRICS
from parsim.report import charts
from parsim.report.advice import is_trying
from parsim.report.page import Block, Chart, Code, Column, Prose, Section, Table
from parsim.report.sections.latency import labels, legend, short
from parsim.sweep.choose import decide, parse_constraint
from parsim.sweep.configuration import configuration_columns, varied
from parsim.sweep.results import Results

SECOND = "p99_e2el_ms"
BEST = 12


def section(results: Results) -> Section:
    """The front of objective against tail, the table of the best, and the command line."""
    facts = results.facts
    constraints = [parse_constraint(text) for text in facts["subject_to"]]
    decision = decide(results.results, facts["objective"], constraints, facts["focus_load"])
    trying = is_trying(results)
    names = {n: label for n, label in labels(results).items() if n in decision.candidates["policy"].to_list()}
    shown = {f"{label}": n for n, label in names.items()}
    frame = decision.candidates.with_columns(
        chosen=_is_chosen(results, decision.candidates), label=pl.col("policy").replace_strict(names)
    )
    second = SECOND if facts["objective"] != SECOND else "mean_per_token_latency_ms"
    blocks: list[Block] = [
        Chart(
            charts.pareto(frame, names, facts["objective"], second),
            "Every setting tried",
            f"The ringed one is {'what vLLM does by default' if trying else 'chosen'}; dashed: no other setting is "
            "better in both; faint: breaks a constraint.",
            legend(names),
        ),
        table(frame, facts["objective"], shown),
        Code(facts["command"], "Run vLLM's defaults" if trying else "Run the chosen settings"),
    ]
    asked = f"Objective: {facts['objective']} ({METRICS[facts['objective']].better} is better)"
    rules = f", subject to {', '.join(map(str, constraints))}" if constraints else ""
    violated = facts["decision"]["violated"]
    if violated:
        blocks.insert(
            0,
            Prose([f"No setting meets every constraint. The nearest one is shown: {'; '.join(violated)}."]),
        )
    lead = f"{asked}{rules}. Grid, starvation thresholds and an Optuna search beyond the grid: {frame.height} settings."
    return Section("What to set", blocks, lead, "settings")


def _is_chosen(results: Results, candidates: pl.DataFrame) -> pl.Expr:
    """The row of the recommended settings."""
    row = results.facts["decision"]["row"]
    columns = configuration_columns(candidates)
    return pl.all_horizontal(pl.col(c).eq_missing(pl.lit(row[c])) for c in columns)


def table(frame: pl.DataFrame, objective: str, chips: dict[str, str]) -> Table:
    """The best settings, the chosen first."""
    columns = {
        "label": Column("Policy"),
        "starvation_threshold_s": Column("Starvation threshold", "s"),
        "victim": Column("Victim"),
        **{name: Column(name) for name in varied(frame)},
        **{
            m: Column(short(m), METRICS[m].unit, None, METRICS[m].formula)
            for m in dict.fromkeys((objective, "mean_per_token_latency_ms", SECOND))
        },
        "feasible": Column("Feasible"),
        "front": Column("On the front"),
    }
    shown = frame.head(BEST).with_columns(
        pl.col("feasible", "front").replace_strict({True: "yes", False: "no"}, return_dtype=pl.String)
    )
    return Table(shown, columns, f"The best {shown.height}", "label", chips)
