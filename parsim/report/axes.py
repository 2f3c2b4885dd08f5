"""What charts have in common: axes and scales that people can read, the colours of policies, named marks."""

from __future__ import annotations

import altair as alt
import polars as pl

from parsim.report import palette

BAND = 3.0
"""How far beyond the values of a chart a band is drawn, as a factor."""
_BLANK = "datum.label == '' ? '' : "
_TIMES = {
    "ms": _BLANK
    + "datum.value < 1e3 ? format(datum.value, '~r') + ' ms' : format(datum.value / 1e3, ',~r') + ' s'",
    "s": _BLANK
    + "datum.value < 1 ? format(datum.value * 1e3, '~r') + ' ms' : format(datum.value, ',~r') + ' s'",
}
"""Labels of an axis of times by the unit of its values: read as people say them, never 600m or 100k."""


def axis(unit: str = "") -> alt.Axis:
    """A vertical axis of a few labels: times as people say them, other large numbers with k and M. On a logarithmic
    scale Vega leaves the labels of minor ticks empty, which stay so."""
    if unit in _TIMES:
        return alt.Axis(labelExpr=_TIMES[unit], tickCount=5)
    return alt.Axis(format="~s", tickCount=5)


def policy_colour(policies: dict[str, str]) -> alt.Color:
    """Colour of the column `label`; the legend is written beside the chart in HTML."""
    domain, colours, _ = palette.scale(policies)
    return alt.Color("label:N", scale=alt.Scale(domain=domain, range=colours), legend=None)


def policy_dash(policies: dict[str, str]) -> alt.StrokeDash:
    domain, _, dashes = palette.scale(policies)
    return alt.StrokeDash("label:N", scale=alt.Scale(domain=domain, range=dashes), legend=None)


def within(frame: pl.DataFrame) -> pl.DataFrame:
    """`low` and `high` kept near the values: a band of few seeds may span orders of magnitude and would flatten all."""
    least, most = pl.col("value").min() / BAND, pl.col("value").max() * BAND
    return frame.with_columns(pl.col("low", "high").clip(least, most))


def log_scale(frame: pl.DataFrame, *columns: str) -> alt.Scale:
    """A logarithmic scale that ends a little outside the positive values of `columns`."""
    values = pl.concat([frame[column].cast(pl.Float64).rename("value") for column in columns]).drop_nulls()
    values = values.filter(values > 0)
    if values.is_empty():
        return alt.Scale(type="log")
    return alt.Scale(type="log", nice=False, domain=[float(values.min()) / 1.2, float(values.max()) * 1.2])  # type: ignore[arg-type]


def plain(metric: str) -> str:
    """A metric's name for an axis, without its unit, which the labels have."""
    return metric.removesuffix("_ms").removesuffix("_s").replace("_", " ")


def vertical_marks(marks: dict[str, float]) -> list[alt.Chart]:
    """A thin line with a name at each x of `marks`."""
    if not marks:
        return []
    frame = pl.DataFrame({"at": list(marks.values()), "name": list(marks)})
    rule = alt.Chart(frame).mark_rule(strokeDash=[4, 3], color="#888").encode(x="at:Q")
    text = (
        alt.Chart(frame)
        .mark_text(align="left", baseline="top", dx=4, y=2, fontSize=11)
        .encode(x="at:Q", text="name:N")
    )
    return [rule, text]
