"""The charts, in Altair. Each takes a tidy frame and returns a chart that fills its container."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from parsim.metrics import METRICS
from parsim.report import palette
from parsim.report.axes import axis, log_scale, plain, policy_colour, policy_dash, vertical_marks, within

HEIGHT = 260


def against_load(
    frame: pl.DataFrame, policies: dict[str, str], title: str, unit: str, marks: dict[str, float]
) -> alt.LayerChart | alt.FacetChart:
    """Lines of `value` over `rate_rps` per `label`, with the band `low`..`high`, and named vertical marks."""
    x = alt.X("rate_rps:Q", title="requests per second", scale=alt.Scale(zero=False, nice=False))
    scale = log_scale(within(frame), "value", "low", "high")
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis(unit))
    tips = [
        alt.Tooltip("label:N", title="policy"),
        alt.Tooltip("rate_rps:Q", title="requests/s", format=".3~g"),
        alt.Tooltip("value:Q", title=f"{title}, {unit}" if unit else title, format=".4~g"),
        alt.Tooltip("low:Q", title="95% from", format=".4~g"),
        alt.Tooltip("high:Q", title="to", format=".4~g"),
    ]
    base = alt.Chart(frame).encode(x=x, color=policy_colour(policies))
    band = (
        base.transform_filter("isValid(datum.low)")
        .mark_area(opacity=0.18, clip=True)
        .encode(y=alt.Y("low:Q", title=title, scale=scale, axis=axis(unit)), y2="high:Q")
    )
    line = base.mark_line(strokeWidth=2.2).encode(y=y, strokeDash=policy_dash(policies))
    dots = base.mark_circle(size=36, opacity=1).encode(y=y, tooltip=tips)
    return alt.layer(band, line, dots, *vertical_marks(marks)).properties(width="container", height=HEIGHT)


def by_policy(
    frame: pl.DataFrame, policies: dict[str, str], title: str, unit: str
) -> alt.LayerChart | alt.FacetChart:
    """`value` with its interval `low`..`high` per `label`, one row each: where there is one load only."""
    x = alt.X("value:Q", title=title, scale=log_scale(frame, "value", "low", "high"), axis=axis(unit))
    y = alt.Y("label:N", title=None, sort=list(policies.values()), axis=alt.Axis(labelLimit=200))
    tips = [
        alt.Tooltip("label:N", title="policy"),
        alt.Tooltip("value:Q", title=f"{title}, {unit}", format=".4~g"),
        alt.Tooltip("low:Q", title="95% from", format=".4~g"),
        alt.Tooltip("high:Q", title="to", format=".4~g"),
    ]
    base = alt.Chart(frame).encode(y=y, color=policy_colour(policies))
    spread = (
        base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    )
    dots = base.mark_circle(size=70, opacity=1).encode(x=x, tooltip=tips)
    return alt.layer(dots, spread).properties(width="container", height=28 * max(len(policies), 3))


def by_group(
    frame: pl.DataFrame,
    policies: dict[str, str],
    x_title: str,
    y_title: str,
    unit: str,
    order: Sequence[str],
) -> alt.LayerChart | alt.FacetChart:
    """Points of `value` for each `bucket`, per `label`, joined by lines; log scale."""
    turned = alt.Axis(labelAngle=-40, labelOverlap=False)
    x = alt.X("bucket:N", title=x_title, sort=list(order), axis=turned)
    y = alt.Y("value:Q", title=y_title, scale=log_scale(frame, "value"), axis=axis(unit))
    tips = [
        "label:N",
        alt.Tooltip("bucket:N", title=x_title),
        alt.Tooltip("value:Q", title=f"{y_title}, {unit}", format=".4~g"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y, color=policy_colour(policies))
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=policy_dash(policies))
    return alt.layer(lines, base.mark_circle(size=44, opacity=1).encode(tooltip=tips)).properties(
        width="container", height=HEIGHT
    )


def over_time(
    frame: pl.DataFrame,
    policies: dict[str, str],
    column: str,
    title: str,
    *,
    unit: str = "",
    share: bool = False,
) -> alt.Chart:
    """Step lines of `column` over `time_s` per `label`."""
    lines = alt.Axis(format="%", tickCount=5) if share else axis(unit)
    scale = alt.Scale(domain=[0, 1]) if share else alt.Scale()
    return (
        alt.Chart(frame)
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=alt.X("time_s:Q", title="seconds", axis=alt.Axis(tickCount=8)),
            y=alt.Y(f"{column}:Q", title=title, axis=lines, scale=scale),
            color=policy_colour(policies),
            strokeDash=policy_dash(policies),
            tooltip=[
                "label:N",
                alt.Tooltip("time_s:Q", format=".4~g"),
                alt.Tooltip(f"{column}:Q", format=".3~g"),
            ],
        )
        .properties(width="container", height=200)
    )


def gain_map(
    frame: pl.DataFrame, field: str, title: str, own: int, own_rate: str
) -> alt.LayerChart | alt.FacetChart:
    """Cells of `gain` over `rate` (text, ordered by `rate_rps`) x `field`; the cell at `own` values is framed."""
    x = alt.X(
        "rate:N",
        title="requests per second",
        sort=alt.EncodingSortField("rate_rps"),
        axis=alt.Axis(labelAngle=0),
    )
    y = alt.Y(f"{field}:O", title=title, sort="descending", axis=alt.Axis(format=",d"))
    colour = alt.Color(
        "log_gain:Q",
        scale=alt.Scale(scheme="blueorange", domain=[-1.5, 1.5], domainMid=0, reverse=True, clamp=True),
        legend=None,
    )
    tips = [
        alt.Tooltip("rate_rps:Q", title="requests/s", format=".3~g"),
        alt.Tooltip(f"{field}:O", title=title),
        alt.Tooltip("gain:Q", title="gain over FCFS", format=".3~g"),
        alt.Tooltip("tail:Q", title="p99 latency / FCFS", format=".3~g"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y)
    cells = base.mark_rect(stroke=None).encode(color=colour, tooltip=tips)
    words = base.mark_text(fontSize=12).encode(
        text="text:N", color=alt.condition("abs(datum.log_gain) > 0.9", alt.value("white"), alt.value("#222"))
    )
    mine = pl.DataFrame({"rate": [own_rate], field: [own]})
    frame_mark = alt.Chart(mine).mark_rect(fillOpacity=0, stroke="#d7263d", strokeWidth=3).encode(x=x, y=y)
    return alt.layer(cells, words, frame_mark).properties(
        width="container", height=34 * frame[field].n_unique()
    )


def by_setting(frame: pl.DataFrame, title: str, unit: str) -> alt.LayerChart | alt.FacetChart:
    """Lines of `value` over `rate_rps` per `setting` (text), in the order of `frame`; log scale."""
    order = frame["setting"].unique(maintain_order=True).to_list()
    legend = alt.Legend(title=None, orient="bottom", columns=2, labelLimit=360)
    colour = alt.Color("setting:N", scale=alt.Scale(domain=order, scheme="viridis"), legend=legend)
    x = alt.X("rate_rps:Q", title="requests per second", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y("value:Q", title=title, scale=log_scale(frame, "value"), axis=axis(unit))
    tips = [
        "setting:N",
        alt.Tooltip("rate_rps:Q", title="requests/s", format=".3~g"),
        alt.Tooltip("value:Q", title=f"{title}, {unit}", format=".4~g"),
    ]
    base = alt.Chart(frame).encode(x=x, y=y, color=colour)
    dots = base.mark_circle(size=36, opacity=1).encode(tooltip=tips)
    return alt.layer(base.mark_line(strokeWidth=2), dots).properties(width="container", height=HEIGHT)


def dial(
    frame: pl.DataFrame, marks: pl.DataFrame, policies: dict[str, str], y_title: str
) -> alt.LayerChart | alt.FacetChart:
    """Gain over the reached tau per kind of error (`errors`), with the real or assumed predictors as marks."""
    kinds = ["everywhere", "among the short", "among the long", "between short and long"]
    x = alt.X("tau:Q", title="Kendall tau-b of the ranking, all requests", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("gain:Q", title=y_title, scale=alt.Scale(zero=False))
    shape = alt.Shape(
        "errors:N",
        scale=alt.Scale(domain=kinds),
        legend=alt.Legend(title="errors", orient="bottom", columns=2),
    )
    colour = alt.Color(
        "errors:N",
        scale=alt.Scale(domain=kinds, range=["#7a7a7a", "#009e73", "#d55e00", "#8c6bb1"]),
        legend=alt.Legend(title="errors", orient="bottom", columns=2),
    )
    tips = ["errors:N", alt.Tooltip("tau:Q", format=".2f"), alt.Tooltip("gain:Q", format=".3~g")]
    base = alt.Chart(frame).encode(x=x, y=y, color=colour)
    lines = base.mark_line(strokeWidth=2)
    points = base.mark_point(filled=True, size=55, opacity=1).encode(shape=shape, tooltip=tips)
    even = (
        alt.Chart(pl.DataFrame({"gain": [1.0]})).mark_rule(strokeDash=[4, 3], color="#888").encode(y="gain:Q")
    )
    layers: list[alt.Chart] = [even, lines, points]
    if marks.height:
        layers += [
            alt.Chart(marks)
            .mark_point(shape="diamond", filled=True, size=150, opacity=1)
            .encode(
                x=x,
                y=y,
                fill=alt.Fill(
                    "label:N",
                    scale=alt.Scale(domain=list(policies.values()), range=palette.scale(policies)[1]),
                    legend=None,
                ),
                tooltip=["label:N", alt.Tooltip("tau:Q", format=".2f"), alt.Tooltip("gain:Q", format=".3~g")],
            ),
        ]
    return alt.layer(*layers).properties(width="container", height=HEIGHT).resolve_scale(shape="shared")


def starvation(
    frame: pl.DataFrame, policies: dict[str, str], column: str, y_title: str
) -> alt.LayerChart | alt.FacetChart:
    """`column` against the guard's threshold (text, in the order of `threshold_order`), per label."""
    x = alt.X(
        "threshold:N",
        title="starvation threshold",
        sort=alt.EncodingSortField("threshold_order"),
        axis=alt.Axis(labelAngle=0),
    )
    y = alt.Y(f"{column}:Q", title=y_title, scale=log_scale(frame, column), axis=axis(METRICS[column].unit))
    base = alt.Chart(frame).encode(x=x, y=y, color=policy_colour(policies))
    tips = ["label:N", "threshold:N", alt.Tooltip(f"{column}:Q", title=y_title, format=".4~g")]
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=policy_dash(policies)),
        base.mark_circle(size=44, opacity=1).encode(tooltip=tips),
    ).properties(width="container", height=220)


def blocking(frame: pl.DataFrame, end_s: float) -> alt.LayerChart | alt.FacetChart:
    """A minute of requests: one row a request in order of arrival; waiting thin, running thick, coloured by length."""
    x = alt.X("from_s:Q", title="seconds", scale=alt.Scale(domain=[0, end_s], clamp=True))
    y = alt.Y("place:O", title="requests in order of arrival", axis=None)
    tips = [
        "request_id:N",
        alt.Tooltip("output_tokens:Q", title="response tokens"),
        alt.Tooltip("wait_s:Q", title="waited, s", format=".3~g"),
    ]
    base = alt.Chart(frame).encode(y=y)
    waiting = base.mark_rule(strokeWidth=1.4, color="#b5b5b5").encode(x=x, x2="start_s:Q", tooltip=tips)
    running = base.mark_bar(cornerRadius=1).encode(
        x=alt.X("start_s:Q", scale=alt.Scale(domain=[0, end_s], clamp=True)),
        x2="to_s:Q",
        color=alt.Color(
            "output_tokens:Q",
            scale=alt.Scale(scheme="viridis", type="log", reverse=True),
            legend=alt.Legend(title="response tokens", orient="bottom", gradientLength=160),
        ),
        tooltip=tips,
    )
    return alt.layer(waiting, running).properties(width="container", height=5 * max(frame.height, 10))


def pareto(frame: pl.DataFrame, policies: dict[str, str], x: str, y: str) -> alt.LayerChart | alt.FacetChart:
    """Every configuration by two metrics; the front is joined, the chosen one is ringed."""
    xs = alt.X(f"{x}:Q", title=plain(x), scale=log_scale(frame, x), axis=axis(METRICS[x].unit))
    ys = alt.Y(f"{y}:Q", title=plain(y), scale=log_scale(frame, y), axis=axis(METRICS[y].unit))
    tips = [
        c
        for c in ("label", "starvation_threshold_s", "victim", "max_num_seqs", "max_num_batched_tokens", x, y)
        if c in frame.columns
    ]
    base = alt.Chart(frame).encode(x=xs, y=ys)
    points = base.mark_point(filled=True, size=60).encode(
        color=policy_colour(policies),
        opacity=alt.condition("datum.feasible", alt.value(0.95), alt.value(0.25)),
        tooltip=tips,
    )
    front = base.transform_filter("datum.front").mark_line(
        color="#888", strokeDash=[3, 3], interpolate="step-after"
    )
    ring = base.transform_filter("datum.chosen").mark_point(size=260, strokeWidth=3, color="#d7263d")
    return alt.layer(front, points, ring).properties(width="container", height=HEIGHT)
