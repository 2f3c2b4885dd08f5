"""A look at a trace: one page on when requests come, how long they are, what they share, what the file lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from markupsafe import Markup

from parsim.report.page import (
    Block,
    Chart,
    Code,
    Column,
    Columns,
    Prose,
    Section,
    Table,
    Verdict,
    number,
    render_page,
)
from parsim.traces.corpus import Corpus
from parsim.traces.info import describe
from parsim.traces.trace import Trace

if TYPE_CHECKING:
    import altair as alt

BARS = 60
CLIENTS = 12
QUESTIONS = {
    "no prompt text": "whether a predictor that reads prompts would help: `parsim score` needs a column prompt",
    "no prefix hashes": "what a prefix cache saves",
    "no scores": "how a predictor at hand would do: policies run on emulated scores, at a stated tau",
    "no clients or sessions": "who pays, by client; and multi-turn conversations",
    "no arrivals": "anything about queues: give it arrivals with `parsim traces join`",
}


def trace_page(trace: Trace | Corpus) -> str:
    """The page as HTML, self-contained."""
    figures = describe(trace)
    sections = [
        Section(f"{figures['name']}: {figures['requests']:,} requests", _head(figures), anchor="trace")
    ]
    if isinstance(trace, Trace) and figures["rate_per_s"] is not None:
        sections.append(Section("When they come", _arrivals(trace, figures), anchor="arrivals"))
    sections.append(Section("How long they are", _lengths(trace, figures), anchor="lengths"))
    shared = _shared(trace)
    if shared:
        sections.append(Section("What they share", shared, anchor="shared"))
    clients = _clients(trace)
    if clients:
        sections.append(Section("Who sends them", clients, anchor="clients"))
    sections.append(Section("What it cannot answer", _lacks(figures), anchor="lacks"))
    return render_page(f"Trace {figures['name']}", sections, subtitle="A look at a trace")


def _head(figures: dict[str, Any]) -> list[Block]:
    facts = []
    if figures.get("span_s") is not None:
        facts.append(("span", f"{figures['span_s']:,.1f} s"))
    if figures.get("rate_per_s"):
        facts.append(("rate", f"{figures['rate_per_s']:,.3g} requests/s"))
    facts += [
        ("prompt tokens, mean", f"{figures['prompt_tokens']['mean']:,.0f}"),
        ("response tokens, mean", f"{figures['output_tokens']['mean']:,.0f}"),
    ]
    notes = [part for part in figures["metadata"].get("notes", "").split("; ") if part]
    if "reading" in figures["metadata"]:
        notes.insert(0, f"Read as: {figures['metadata']['reading']}")
    headline = (
        "A burst: all requests come at once" if figures.get("rate_per_s", 0) is None else _headline(figures)
    )
    about = {key: text for key, text in figures["metadata"].items() if key not in ("notes", "reading")}
    rows = pl.DataFrame(
        {"key": list(about), "text": list(about.values())}, schema={"key": pl.String, "text": pl.String}
    )
    return [
        Verdict("neutral", headline, notes, facts),
        Table(rows, {"key": Column("What"), "text": Column("Value")}, "Provenance", folded=True),
    ]


def _headline(figures: dict[str, Any]) -> str:
    if "rate_per_s" not in figures:
        return "Lengths without arrival times: a corpus"
    cv = figures["interarrival_cv"]
    kind = "burstier than" if cv > 1.2 else "more even than" if cv < 0.8 else "about as bursty as"
    return f"{figures['rate_per_s']:,.3g} requests/s, {kind} a Poisson process (inter-arrival CV {cv:.2f})"


def _arrivals(trace: Trace, figures: dict[str, Any]) -> list[Block]:
    import altair as alt

    width = trace.span_s / BARS
    bars = (
        trace.frame.select(bin=(pl.col("arrival_s") / width).floor().clip(0, BARS - 1) * width)
        .group_by("bin")
        .len("requests")
        .sort("bin")
        .with_columns(rate=pl.col("requests") / width)
    )
    chart = (
        alt.Chart(bars)
        .mark_bar()
        .encode(
            x=alt.X("bin:Q", title="seconds from the start", bin=alt.Bin(binned=True, step=width)),
            x2="end:Q",
            y=alt.Y("rate:Q", title="requests/s"),
        )
        .transform_calculate(end=f"datum.bin + {width}")
        .properties(width="container", height=220)
    )
    counts = bars["requests"]
    spread = f"{counts.len()} of {BARS} intervals of {width:,.3g} s have requests; the busiest has "
    busiest = float(bars["rate"].max() or 0.0)  # type: ignore[arg-type]
    prose = Prose(
        [spread + f"{busiest:,.3g} requests/s, {busiest / figures['rate_per_s']:.2g} times the mean."]
    )
    lines: list[Block] = [Chart(chart, "Rate over time"), prose]
    if "session_id" in trace.frame.columns:
        lines.append(Prose([_sessions(trace)]))
    return lines


def _sessions(trace: Trace) -> str:
    sizes = trace.frame["session_id"].drop_nulls().value_counts()["count"]
    waits = (
        trace.frame["delay_s"].drop_nulls()
        if "delay_s" in trace.frame.columns
        else pl.Series([], dtype=pl.Float64)
    )
    known = f"; {len(waits):,} of them have a recorded wait after the turn before" if len(waits) else ""
    return (
        f"{len(sizes):,} sessions with {int(sizes.sum()) - len(sizes):,} later turns{known}. A replay is open loop: "
        "every turn comes at its recorded time, also where the answer before it would not have been there yet."
    )


def _lengths(trace: Trace | Corpus, figures: dict[str, Any]) -> list[Block]:
    rows = [
        {"what": label, **figures[key]}
        for label, key in (
            ("prompt", "prompt_tokens"),
            ("response", "output_tokens"),
            ("both", "kv_tokens_per_request"),
        )
    ]
    columns = {"what": Column("Tokens")} | {name: Column(name, digits=0) for name in list(rows[0])[1:]}
    charts = [
        _histogram(trace.frame, name, title)
        for name, title in (("prompt_tokens", "Prompt"), ("output_tokens", "Response"))
    ]
    rank = figures["spearman"]
    if rank is None:
        said = "All lengths of a kind are equal: no order by length can differ from any other."
    else:
        text = number(rank, f"{rank:.2f}", "spearman")
        hint = "says little about the response's" if abs(rank) < 0.3 else "is a hint at the response's"
        said = Markup(
            "Prompt and response lengths have a rank correlation of {}: the prompt's length {}."
        ).format(text, hint)
    return [Columns(charts), Table(pl.DataFrame(rows), columns, "Lengths in tokens"), Prose([said])]


def _histogram(frame: pl.DataFrame, name: str, title: str) -> Chart:
    import altair as alt

    logs = frame.select(pl.col(name).cast(pl.Float64).log(10).alias("log"))
    low, high = float(logs["log"].min()), float(logs["log"].max())  # type: ignore[arg-type]
    step = max((high - low) / 40, 1e-6)
    bars = (
        logs.select(bin=((pl.col("log") - low) / step).floor().clip(0, 39))
        .group_by("bin")
        .len("requests")
        .sort("bin")
        .with_columns(low=10 ** (low + pl.col("bin") * step), high=10 ** (low + (pl.col("bin") + 1) * step))
    )
    chart: alt.Chart = (
        alt.Chart(bars)
        .mark_rect()
        .encode(
            x=alt.X("low:Q", title="tokens", scale=alt.Scale(type="log")),
            x2="high:Q",
            y=alt.Y("requests:Q", title="requests"),
            y2=alt.datum(0),
        )
        .properties(width="container", height=200)
    )
    return Chart(chart, f"{title} length")


def _shared(trace: Trace | Corpus) -> list[Block]:
    if "prefix_hashes" not in trace.frame.columns:
        return []
    blocks = (
        trace.frame.select(pl.int_range(pl.len()).alias("at"), "prefix_hashes")
        .explode("prefix_hashes")
        .drop_nulls()
    )
    if blocks.is_empty():
        return [Prose(["No request has a full block of its prompt: nothing can be shared."])]
    seen = ~blocks["prefix_hashes"].is_first_distinct()
    share = float(seen.mean())  # type: ignore[arg-type]
    size = int(trace.metadata.get("hash_block_size", 0))
    top = blocks["prefix_hashes"].value_counts()["count"].max()
    text = number(share, f"{share:.0%}", "shared_blocks")
    said = Markup(
        "{:,} full blocks of {} tokens, {} of them seen before: what a prefix cache without limit would save at most. "
        "The most common block stands in {:,} requests."
    ).format(len(blocks), size, text, top)
    return [Prose([said])]


def _clients(trace: Trace | Corpus) -> list[Block]:
    if "client_id" not in trace.frame.columns:
        return []
    rows = (
        trace.frame.group_by("client_id")
        .agg(
            requests=pl.len(),
            share=100 * pl.len() / trace.frame.height,
            prompt=pl.col("prompt_tokens").mean(),
            response=pl.col("output_tokens").mean(),
            longest=pl.col("output_tokens").max(),
        )
        .sort("requests", "client_id", descending=[True, False])
    )
    columns = {
        "client_id": Column("Client"),
        "requests": Column("Requests"),
        "share": Column("Share", "%", 1),
        "prompt": Column("Prompt, mean", "tokens", 0),
        "response": Column("Response, mean", "tokens", 0),
        "longest": Column("Longest response", "tokens"),
    }
    more = (
        f"The {CLIENTS} clients with most requests of {rows.height:,}" if rows.height > CLIENTS else "Clients"
    )
    return [Table(rows.head(CLIENTS), columns, more)]


def _lacks(figures: dict[str, Any]) -> list[Block]:
    found = [lack.split(":")[0] for lack in figures["lacks"]]
    rows = pl.DataFrame(
        [{"lack": lack, "question": QUESTIONS.get(lack, "")} for lack in found],
        schema={"lack": pl.String, "question": pl.String},
    )
    if rows.is_empty():
        return [
            Prose(["It has prompts, prefix hashes, scores, and clients or sessions: nothing is missing."])
        ]
    columns = {"lack": Column("The file has"), "question": Column("So it cannot say")}
    return [Table(rows, columns), Code("parsim sweep --trace FILE", "What it can say, on an engine of yours")]
