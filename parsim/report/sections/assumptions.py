"""Every assumption with its source, and every formula."""

from __future__ import annotations

import polars as pl

from parsim.metrics import METRICS
from parsim.report.page import Block, Column, Prose, Section, Table
from parsim.stats import block_length
from parsim.sweep.results import Results


def section(results: Results) -> Section:
    """What was assumed, where it comes from, how each metric is computed, and the files beside the page."""
    rows = [{"what": what, "value": value, "source": source} for what, value, source in assumptions(results)]
    table = Table(
        pl.DataFrame(rows),
        {"what": Column("Assumption"), "value": Column("Value"), "source": Column("Source")},
        "Assumptions and their sources",
    )
    formulas = pl.DataFrame(
        [{"name": m.name, "unit": m.unit, "better": m.better, "formula": m.formula} for m in METRICS.values()]
    )
    columns = {
        "name": Column("Metric"),
        "unit": Column("Unit"),
        "better": Column("Better"),
        "formula": Column("Formula"),
    }
    blocks: list[Block] = [
        table,
        Table(formulas, columns, "Metrics and their formulas", folded=True),
        Prose([files()], small=True),
    ]
    return Section("What this rests on", blocks, "", "assumptions")


def assumptions(results: Results) -> list[tuple[str, str, str]]:
    """(what, value, source) of everything that is not measured in this sweep."""
    facts = results.facts
    trace, engine, step = facts["trace"], facts["engine"], facts["engine"]["step_time"]
    meta = trace["metadata"]
    terms = ", ".join(
        f"{step[k] * 1e6:.4g} µs {name}"
        for k, name in (
            ("base_s", "a step"),
            ("prefill_token_s", "a prefill token"),
            ("decode_seq_s", "a decoding sequence"),
            ("kv_token_s", "a KV token read"),
            ("attention_pair_s", "an attention pair"),
            ("weights_s", "reading the weights"),
            ("experts_s", "reading all experts"),
            ("token_s", "a token's arithmetic, beside that reading"),
        )
        if step.get(k) or k == "base_s"
    )
    fit = step.get("fit_error")
    error = (
        "; fit error " + ", ".join(f"{k} {v:.1%}" for k, v in fit.items())
        if fit
        else "; not fitted: error unknown"
    )
    rows = [
        (
            "Trace",
            f"{trace['name']}, {trace['requests']:,} requests",
            "; ".join(f"{k}: {v}" for k, v in sorted(meta.items()) if k != "name"),
        ),
        ("Engine", f"{engine['name']}", engine["provenance"]),
        ("Step time", terms, f"{step['source']}: {step['provenance']}{error}"),
        (
            "Scheduling rules",
            "vLLM V1 (0.32), step for step",
            "parsim/engine; compared by parsim validate parity",
        ),
        ("Response lengths", "as recorded, whatever the policy", "trace"),
    ]
    if turns := trace.get("later_turns"):
        rows.append(
            (
                "Sessions",
                "open loop",
                f"{turns:,} later turns come at their recorded times, also before the answer to the turn before them "
                "is there; `parsim simulate` counts those",
            )
        )
    if held := meta.get("max_concurrency"):
        rows.append(
            (
                "Arrivals",
                f"held back by the client: at most {held} requests at a time",
                "the recording; users who do not wait for one another would come earlier",
            )
        )
    for name, tau in facts["emulated"].items():
        rows.append((f"Predictor {name}", f"emulated at Kendall tau-b {tau:.2f}", facts["tau_source"]))
    if trace["redrawn"]:
        count = len(facts["seeds"])
        spread = (
            f"{count} seeds, arrivals and rows drawn anew, paired across policies; Student t on logarithms"
        )
    else:
        spread = (
            "the trace as recorded, and others in which its requests and gaps are drawn again in blocks of "
            f"{block_length(trace['requests'])}, simulated anew and the same for all policies"
        )
    rows.append(("Intervals", "95%", spread))
    rows.append(
        (
            "Capacity",
            f"{facts['capacity_rps']:.3g} requests/s",
            "completions per second when everything arrives at once (FCFS), 20th to 80th percentile",
        )
    )
    rows.append(
        (
            "max_num_seqs in the search",
            "KV blocks unchanged",
            "vLLM's activation memory grows a little with it; validate checks",
        )
    )
    return rows


def files() -> str:
    from markupsafe import Markup

    links = ", ".join(
        f'<a href="{name}">{name}</a> ({what})'
        for name, what in (
            ("results.parquet", "one row a run"),
            ("groups.parquet", "deciles and clients"),
            ("requests.parquet", "one row a request"),
            ("series.parquet", "over time"),
            ("choice.json", "the chosen settings"),
            ("sweep.yaml", "the sweep file, resolved"),
        )
    )
    return Markup("Beside this page: {}.").format(Markup(links))
