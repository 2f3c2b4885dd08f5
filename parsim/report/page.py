"""A self-contained HTML page: verdict, prose, charts and sortable tables. No network, one file.

`render_page` takes plain blocks and knows nothing of sweeps, so that `validate` builds its page from the same parts.
Charts are Altair charts, drawn by the Vega scripts embedded in the page (vl-convert's bundle).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from markupsafe import Markup, escape

from parsim.report import palette, vega

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

LONG_MS = 1e4
"""From here on milliseconds are hard to read."""
VerdictKind = Literal["good", "mixed", "poor", "neutral"]


@dataclass(frozen=True)
class Prose:
    """Paragraphs. A plain `str` is escaped; `Markup` is taken as HTML."""

    paragraphs: Sequence[str]
    small: bool = False


@dataclass(frozen=True)
class Verdict:
    """The answer in words: a headline, the sentences under it, and facts as (label, value) pairs."""

    kind: VerdictKind
    headline: str
    sentences: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    command: str | None = None
    command_title: str = "Run it"


@dataclass(frozen=True)
class Chart:
    """An Altair chart with its title, the sentence that says how to read it, and a legend of (label, policy name)."""

    chart: alt.typing.ChartType
    title: str
    caption: str = ""
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Column:
    """How one column of a table is shown: heading, unit, decimals and the formula at hand when pointed at."""

    title: str
    unit: str = ""
    digits: int | None = None
    formula: str = ""


@dataclass(frozen=True)
class Table:
    """A table that sorts by a click on a heading. Columns that `columns` does not name are left out.

    Cells of the column `policy_column` get a chip in the colour of the policy that `chips` maps their text to.
    """

    frame: pl.DataFrame
    columns: Mapping[str, Column]
    caption: str = ""
    policy_column: str | None = None
    chips: Mapping[str, str] = field(default_factory=dict)
    folded: bool = False


@dataclass(frozen=True)
class Code:
    """A command line or a file's text, with its title."""

    text: str
    title: str = ""


@dataclass(frozen=True)
class Columns:
    """Blocks side by side where the screen is wide enough, one below the other where it is not."""

    blocks: Sequence[Block]


Block: TypeAlias = Prose | Verdict | Chart | Table | Code | Columns


@dataclass(frozen=True)
class Section:
    """A heading, a sentence under it, and blocks."""

    heading: str
    blocks: Sequence[Block]
    lead: str = ""
    anchor: str = ""


def number(value: float, text: str, what: str, **facts: object) -> Markup:
    """A number in a sentence, carrying what it is, so that a reader's script (or a test) can recompute it.

    `what` names the quantity; `facts` (policy, metric, load, ...) say of what it is the quantity.
    """
    pairs = {"number": what, "value": repr(float(value)), **facts}
    attributes = Markup("").join(
        Markup(' data-{}="{}"').format(Markup(k.replace("_", "-")), v) for k, v in pairs.items()
    )
    return Markup('<b class="num"{}>{}</b>').format(attributes, text)


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    footer: str = "",
    reload_s: int | None = None,
) -> str:
    """The page as text: `sections` in order, a table of contents when there are more than two, all scripts inside.

    `reload_s`: seconds after which a browser reads the file again, for a page that will be replaced.
    """
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.DictLoader({"page.html": _text("page.html")}),
    )
    renderer = _Renderer()
    body = [(s, s.anchor or f"s{i}", [renderer.block(b) for b in s.blocks]) for i, s in enumerate(sections)]
    return environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        footer=footer,
        reload_s=reload_s,
        sections=body,
        css=Markup(_text("page.css")),
        script=Markup(_text("page.js")),
        version=version("parsim"),
        vega=Markup(vega.scripts()) if renderer.charts else "",
        charts=renderer.charts,
    )


class _Renderer:
    """Turns blocks into HTML and collects the charts' specifications."""

    def __init__(self) -> None:
        self.charts: list[tuple[str, Markup]] = []

    def block(self, block: Block) -> Markup:
        match block:
            case Prose(paragraphs, small):
                css = "prose small" if small else "prose"
                return Markup("").join(Markup('<p class="{}">{}</p>').format(css, p) for p in paragraphs)
            case Verdict():
                return self._verdict(block)
            case Chart():
                return self._chart(block)
            case Table():
                return self._table(block)
            case Code(text, title):
                heading = Markup("<h4>{}</h4>").format(title) if title else Markup("")
                return heading + Markup("<pre><code>{}</code></pre>").format(text)
            case Columns(blocks):
                inner = Markup("").join(Markup("<div>{}</div>").format(self.block(b)) for b in blocks)
                return Markup('<div class="columns">{}</div>').format(inner)

    def _verdict(self, v: Verdict) -> Markup:
        parts = [Markup('<p class="headline">{}</p>').format(v.headline)]
        parts += [Markup("<p>{}</p>").format(s) for s in v.sentences]
        if v.facts:
            cells = Markup("").join(
                Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(*fact) for fact in v.facts
            )
            parts.append(Markup("<dl>{}</dl>").format(cells))
        if v.command:
            parts.append(Markup("<h4>{}</h4><pre><code>{}</code></pre>").format(v.command_title, v.command))
        return Markup('<div class="verdict {}">{}</div>').format(v.kind, Markup("").join(parts))

    def _chart(self, c: Chart) -> Markup:
        name = f"chart-{len(self.charts)}"
        spec = c.chart.to_dict()
        spec.pop("$schema", None)
        if c.legend:
            spec = vega.switchable(spec)
        text = json.dumps(vega.strict(spec), separators=(",", ":"), sort_keys=True, allow_nan=False)
        text = text.replace("<", "\\u003c")
        self.charts.append((name, Markup(text)))
        chips = Markup("").join(
            Markup('<button type="button" aria-pressed="true" data-label="{}">{}</button>').format(
                label, _chip(label, policy)
            )
            for label, policy in c.legend
        )
        return Markup(
            '<figure><figcaption><b>{}</b> {}</figcaption><div class="legend">{}</div>'
            '<div class="chart" id="{}" role="img" aria-label="{}"></div></figure>'
        ).format(c.title, c.caption, chips, name, c.title)

    def _table(self, t: Table) -> Markup:
        t = in_seconds(t)
        heads = Markup("").join(
            Markup('<th scope="col" title="{}"><button>{}{}</button></th>').format(
                c.formula, c.title, Markup(" <small>{}</small>").format(c.unit) if c.unit else ""
            )
            for c in t.columns.values()
        )
        rows = Markup("").join(
            Markup("<tr>{}</tr>").format(
                Markup("").join(self._cell(t, name, row[name]) for name in t.columns)
            )
            for row in t.frame.select(list(t.columns)).iter_rows(named=True)
        )
        table = Markup(
            '<div class="scroll"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
        ).format(t.caption, heads, rows)
        if not t.folded:
            return table
        return Markup("<details><summary>{}</summary>{}</details>").format(t.caption or "Table", table)

    @staticmethod
    def _cell(t: Table, name: str, value: Any) -> Markup:
        if name == t.policy_column and value in t.chips:
            return Markup("<td>{}</td>").format(_chip(str(value), t.chips[value]))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return Markup("<td>{}</td>").format("" if value is None else value)
        return Markup('<td class="n" data-sort="{}">{}</td>').format(
            value, figure(value, t.columns[name].digits)
        )


def in_seconds(t: Table) -> Table:
    """The table with columns of milliseconds in seconds where most values are 10 s or more."""
    import polars as pl

    long = [
        name
        for name, column in t.columns.items()
        if column.unit == "ms"
        and t.frame[name].dtype.is_numeric()
        and float(t.frame[name].drop_nans().median() or 0.0) >= LONG_MS  # type: ignore[arg-type]
    ]
    columns = {n: replace(c, unit="s", digits=None) if n in long else c for n, c in t.columns.items()}
    return replace(t, frame=t.frame.with_columns(pl.col(long) / 1e3), columns=columns) if long else t


def _chip(label: str, policy: str) -> Markup:
    return Markup('<span class="chip"><i style="background:{}"></i>{}</span>').format(
        palette.colour(policy), escape(label)
    )


def figure(value: float, digits: int | None = None) -> str:
    """A number as people read it: three significant digits (or `digits` decimals), thousands separated."""
    if value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    if digits is not None:
        return f"{value:,.{digits}f}"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if 1 <= abs(value) < 10 else f"{value:.3g}"


def _text(name: str) -> str:
    return files("parsim.report").joinpath(name).read_text(encoding="utf-8")
