"""`parsim simulate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.idle import idle_in, name_idle, say_early_turns
from parsim.cli.preset_options import Dtype, Gpu, KvCacheDtype, Tp
from parsim.cli.reading import Column, Format, HashBlockSize, Run, SkipBad, Tick, TimeUnit, reading, say
from parsim.defaults import DEFAULT_ENGINE
from parsim.errors import UserError
from parsim.options import (
    Emulate,
    Engine,
    Fields,
    Seed,
    TraceArgument,
    Victim,
    chosen_policy,
    emulated_taus,
    pairs,
    slo_limits,
)

if TYPE_CHECKING:
    from parsim.simulation import Run as Simulated

SHOWN = (
    "completed",
    "rejected",
    "request_throughput",
    "output_throughput",
    "mean_per_token_latency_ms",
    "p90_per_token_latency_ms",
    "p99_per_token_latency_ms",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "mean_e2el_ms",
    "p99_e2el_ms",
    "mean_queue_ms",
    "max_wait_s",
    "preemptions",
    "recomputed_tokens",
    "promoted",
    "mean_kv_usage",
    "jain_fairness_slowdown",
    "request_goodput",
)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command("simulate", context_settings={"allow_extra_args": True})(simulate_command)


def simulate_command(
    context: typer.Context,
    trace: TraceArgument,
    policy: Annotated[
        str, typer.Option(help="A policy: see `policies`; or module:function, an order of your own.")
    ] = "fcfs",
    engine: Engine = DEFAULT_ENGINE,
    gpu: Gpu = None,
    tp: Tp = None,
    dtype: Dtype = None,
    kv_cache_dtype: KvCacheDtype = None,
    set_: Fields = None,
    load: Annotated[float, typer.Option(help="Arrivals come this many times faster.")] = 1.0,
    seed: Seed = 0,
    emulate: Emulate = None,
    starvation_s_per_token: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds of waiting for each expected token after which it is promoted."),
    ] = None,
    ageing_tokens_per_s: Annotated[
        float | None,
        typer.Option(min=0, help="Expected tokens by which a second of waiting shortens a request."),
    ] = None,
    starvation_threshold_s: Annotated[
        str | None,
        typer.Option(metavar="S|none", help="Seconds of waiting after which a request is promoted."),
    ] = None,
    victim: Victim = None,
    do_no_harm: Annotated[
        bool,
        typer.Option(
            "--do-no-harm", help="Use scores only while they rank what has finished; `online` always does."
        ),
    ] = False,
    scoring_cost: Annotated[
        str,
        typer.Option(
            metavar="shipped|free|FILE",
            help="What a predictor's scores cost: the shipped one's seconds, none, or a measured file.",
        ),
    ] = "shipped",
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:MS ...", help="Limits for goodput: ttft, tpot, e2el in ms."),
    ] = None,
    format_: Format = None,
    column: Column = None,
    time_unit: TimeUnit = None,
    hash_block_size: HashBlockSize = None,
    tick: Tick = None,
    run_: Run = None,
    skip_bad: SkipBad = False,
    steps: Annotated[Path | None, typer.Option(help="Write one row a step to this Parquet file.")] = None,
    steps_detail: Annotated[
        bool, typer.Option(help="With --steps: also the requests of every step.")
    ] = False,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a trace for ui.perfetto.dev to this file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write requests.parquet and metrics.json to this folder.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON object of metrics, nothing else.")
    ] = False,
) -> None:
    """Replay one trace on one engine under one policy."""
    from parsim.engine import load_engine
    from parsim.engine.scoring_cost import read_cost
    from parsim.metrics import summarize
    from parsim.simulation import simulate
    from parsim.traces import bundled_trace
    from parsim.traces.readers import trace_of
    from parsim.traces.reading import Reading

    if steps_detail and steps is None:
        raise UserError("--steps-detail: needs --steps FILE to write to")
    if context.args and not slo:
        raise UserError(f"unexpected argument {context.args[0]!r}; see parsim simulate --help")
    limits = slo_limits([*(slo or []), *context.args])
    cost = read_cost(scoring_cost)
    config = load_engine(
        engine, pairs("--set", set_ or []), gpu=gpu, tp=tp, dtype=dtype, kv_cache_dtype=kv_cache_dtype
    )
    how = reading(format_, column, time_unit, hash_block_size, tick, run_, None, skip_bad)
    if trace == "bundled" and how != Reading():
        raise UserError("the bundled trace is read as it is; leave --format, --column and the like out")
    workload = bundled_trace() if trace == "bundled" else trace_of(trace, how)
    if trace != "bundled":
        say(workload)
    chosen = chosen_policy(
        policy,
        starvation_threshold_s,
        victim,
        workload.score_names,
        starvation_s_per_token,
        ageing_tokens_per_s,
    )
    if do_no_harm:
        chosen = replace(chosen, do_no_harm=True)
    taus = emulated_taus(emulate or [], [chosen.name])
    wanted = "detail" if steps_detail or perfetto else "log" if steps else "none"
    run = simulate(
        workload,
        config,
        chosen,
        load=load,
        seed=seed,
        emulate=taus,
        scoring=cost,
        steps=wanted,  # type: ignore[arg-type]
    )
    name_idle(context, idle_in(chosen.name, emulated=bool(taus)))
    say_early_turns(workload, run)
    metrics = summarize(run.requests, limits, run.metadata["mean_kv_usage"], run.gaps)
    if steps is not None:
        _write_steps(run, steps, detail=steps_detail)
    if perfetto is not None:
        from parsim.report.perfetto import write_perfetto

        write_perfetto(run, perfetto)
    if out is not None:
        _write_run(run, metrics, out)
    if json_:
        print(
            _json(
                {
                    "policy": run.metadata["policy_label"],
                    "reached_tau": run.metadata["reached_tau"],
                    **metrics,
                }
            )
        )
    else:
        _print(run, metrics)


def _write_steps(run: Simulated, path: Path, detail: bool) -> None:
    from parsim.files import replacing

    assert run.steps is not None
    frame = run.steps if detail else run.steps.drop("scheduled", "cached_tokens", strict=False)
    with replacing(path) as temporary:
        frame.write_parquet(temporary)


def _write_run(run: Simulated, metrics: dict[str, float], folder: Path) -> None:
    from parsim.files import replacing

    with replacing(folder / "requests.parquet") as temporary:
        run.requests.write_parquet(temporary)
    stable = {key: value for key, value in run.metadata.items() if key != "cpu_s"}
    with replacing(folder / "metrics.json") as temporary:
        temporary.write_text(_json({"metrics": metrics, "run": stable}) + "\n", encoding="utf-8")


def _json(value: dict[str, Any]) -> str:
    """Strict JSON: a number that is not finite becomes null."""
    import json

    def finite(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: finite(inner) for key, inner in item.items()}
        return None if isinstance(item, float) and not abs(item) < float("inf") else item

    return json.dumps(finite(value), indent=2)


def _print(run: Simulated, metrics: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    from parsim.metrics import METRICS

    console = Console()
    meta = run.metadata
    table = Table(
        "metric",
        "value",
        "unit",
        title=f"{meta['trace']} on {meta['engine']['name']}: {meta['policy_label']}",
    )
    table.columns[1].justify = "right"
    for name in SHOWN:
        if name in metrics:
            table.add_row(
                name,
                f"{metrics[name]:,.4g}" if metrics[name] < 1e4 else f"{metrics[name]:,.0f}",
                METRICS[name].unit,
            )
    console.print(table)
    step_time = meta["engine"]["step_time"]
    console.print(
        f"step time: {step_time['source']} - {step_time['provenance']}", style="dim", highlight=False
    )
    if meta["reached_tau"] is not None:
        reached = meta["reached_tau"]
        reached = "undefined (all lengths are equal)" if reached != reached else f"{reached:.3f} reached"
        console.print(
            f"scores are emulated: tau_b {reached}, {meta['emulated_tau']:.3f} asked",
            style="yellow",
            highlight=False,
        )
    if "learned_tau" in meta:
        tau = meta["learned_tau"]
        console.print(
            f"scores were learned in this run: {meta['scored']:.1%} of the requests got one, "
            f"tau_b {'undefined' if tau is None or tau != tau else f'{tau:.3f}'} over all of those",
            style="dim",
            highlight=False,
        )
    if "judged_tau" in meta:
        console.print(
            f"scores came into use {meta['trusted_times']} times and went out of use {meta['distrusted_times']} times "
            "(do no harm); while out of use, requests are served in turn",
            style="dim",
            highlight=False,
        )
    if "mean_scoring_delay_s" in meta:
        never = meta["never_scored"]
        answered = f"a score is there {meta['mean_scoring_delay_s'] * 1e3:.3g} ms after arrival"
        if never:
            answered = "no score came" if never == 1 else f"{answered} ({never:.1%} never get one)"
        console.print(
            f"scoring is charged: {answered}, {meta['admitted_unscored']:.1%} are admitted before; "
            f"{meta['scoring_s_per_request'] * 1e3:.3g} ms of a core a request",
            style="dim",
            highlight=False,
        )
    refused = run.requests.filter(run.requests["rejected"].is_not_null())
    if refused.height:
        console.print(f"rejected: {refused.height} of {run.requests.height}; the first:", style="yellow")
        for row in refused.head(5).iter_rows(named=True):
            console.print(f"  {row['request_id']}: {row['rejected']}", highlight=False)
    console.print(
        f"{meta['steps']:,} steps simulated in {meta['cpu_s']:.2f} CPU-seconds", style="dim", highlight=False
    )
