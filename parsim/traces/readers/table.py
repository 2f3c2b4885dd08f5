"""The general reader: a table whose columns are found by their names, whatever the format is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from parsim.errors import UserError, closest
from parsim.traces.checks import FAILED, RAW_ARRIVAL, Draft
from parsim.traces.readers import hashes, sessions
from parsim.traces.readers.columns import Taken, take
from parsim.traces.readers.failures import failed
from parsim.traces.readers.format import Format, Rows, absent
from parsim.traces.readers.names import WANTED
from parsim.traces.readers.rows import BYTES_PER_TOKEN, estimated, few
from parsim.traces.readers.samples import one_sample_a_row
from parsim.traces.readers.source import Source
from parsim.traces.readers.times import Stamps, stamps
from parsim.traces.reading import COLUMNS, Reading
from parsim.traces.trace import OPTIONAL, SCORE_PREFIX

CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Prompt tokens that Anthropic's `input_tokens` leaves out (docs.claude.com, prompt caching)."""


def draft(source: Source, form: Format, reading: Reading, rows: Rows | None = None) -> Draft:
    """The file's requests as a draft of a trace, or of a corpus where nothing tells when they arrive."""
    if rows is None and form.rows is not None:
        rows = form.rows(source, reading)
    names = [name for name in rows.frame.columns if name != "row"] if rows is not None else source.names
    taken = take(source, names, form, reading)
    frame = rows.frame if rows is not None else source.table(taken.all())
    metadata = {"source": form.origin, "licence": form.licence, "tokenizer": form.tokenizer}
    if source.kind == "parquet":
        metadata = source.parquet_metadata() or metadata
    if rows is not None:
        metadata |= rows.metadata
    work = _Work(source, form, reading, taken, frame, metadata, list(rows.notes) if rows is not None else [])
    return work.draft(names)


class _Work:
    """One file on its way to a draft."""

    def __init__(
        self,
        source: Source,
        form: Format,
        reading: Reading,
        taken: Taken,
        frame: pl.DataFrame,
        metadata: dict[str, str],
        notes: list[str],
    ) -> None:
        self.source, self.form, self.reading, self.taken = source, form, reading, taken
        self.frame, self.metadata, self.notes = frame, metadata, notes
        self.said: list[str] = []
        self.used: set[str] = set()
        self._own = source.kind == "parquet" and bool(
            {"name", "format", "source"} & set(source.parquet_metadata())
        )

    def column(self, column: str) -> pl.Series | None:
        """The file's column taken for `column`; marked as used."""
        name = self.taken.names.get(column)
        if name is None:
            return None
        self.used.add(name)
        return self.frame[name]

    def draft(self, names: Sequence[str]) -> Draft:
        self._one_model()
        self.frame, note = one_sample_a_row(self.frame, self.taken.names)
        self.notes += note
        out: dict[str, pl.Series] = {"row": self.frame["row"]}
        if (failures := failed(self.frame, self.taken.failures)) is not None:
            out[FAILED] = failures
            self.used |= set(self.taken.failures)
        times = self._times()
        for column, response in (("prompt_tokens", "prompt"), ("output_tokens", "response")):
            out[column] = self._tokens(names, column, response)
        if (identity := self._identity()) is not None:
            out["request_id"] = identity
        for column in ("prompt", "session_id", "client_id"):
            if (values := self.column(column)) is not None:
                if not isinstance(values.dtype, pl.List | pl.Struct):
                    out[column] = values.cast(pl.String)
                elif column in self.taken.sure:
                    raise UserError(
                        f"{self.source.path}: a column is of an unexpected type ({column} is {values.dtype})"
                    )
        for column in self.taken.names:
            if column.startswith(SCORE_PREFIX) and (values := self.column(column)) is not None:
                out[column] = values
        self._hashes(out)
        frame = pl.DataFrame(out)
        own_clock = False
        if times is not None:
            raw = self.column("arrival_s")
            assert raw is not None
            frame = frame.with_columns(arrival_s=times.seconds)
            if not (raw.dtype.is_numeric() and self.taken.names["arrival_s"] == "arrival_s"):
                frame = frame.with_columns(raw.alias(RAW_ARRIVAL))
            own_clock = self.taken.names["arrival_s"] == "arrival_s" and not times.absolute
        frame = self._turns(frame, times)
        self._assumed(names, times)
        return Draft(
            frame,
            fields={column: name for column, name in self.taken.names.items() if column != name},
            metadata=self.metadata,
            notes=self.notes,
            starts_at_zero=own_clock,
            whole_seconds=times is not None and times.whole,
            time_unit_sure=times is None or times.sure,
            own=self._own,
        )

    def _one_model(self) -> None:
        """Only the rows of the model asked for; several models in one file are named."""
        wanted, models = self.reading.model, self.column("model")
        if wanted is not None and models is None and not self.form.by_model:
            raise UserError(
                f"{self.source.path}: has one length a request and names no model; leave the model out"
            )
        if models is None or self.form.by_model or isinstance(models.dtype, pl.List | pl.Struct):
            return
        found = models.cast(pl.String).drop_nulls().unique(maintain_order=True)
        if wanted is not None:
            kept = self.frame.filter(models.cast(pl.String) == wanted)
            if kept.is_empty():
                raise UserError(f"{self.source.path}: no row of model {wanted!r}; found: {few(found)}")
            self.frame, self.metadata["model"] = kept, wanted
        elif len(found) == 1:
            self.metadata.setdefault("model", str(found[0]))
        elif len(found) > 1:
            self.notes.append(
                f"requests to {len(found)} models ({few(found, 3)}) are taken as requests to one engine"
            )

    def _times(self) -> Stamps | None:
        values = self.column("arrival_s")
        if values is None or self.form.lengths_only:
            return None
        if isinstance(values.dtype, pl.List | pl.Struct):
            raise UserError(f"{self.source.path}: {self.taken.names['arrival_s']} holds no time stamps")
        if values.dtype == pl.Time:
            raise UserError(
                f"{self.source.path}: {self.taken.names['arrival_s']} holds times of day without their date; "
                "write date and time, or seconds since the start"
            )
        if self._own and values.dtype.is_numeric() and self.reading.time_unit is None:
            # written by this project: its clock is kept
            return Stamps(values.cast(pl.Float64), "seconds", absolute=False, sure=True, whole=False)
        return stamps(values, self.reading.time_unit, self.taken.units.get("arrival_s"), self.form.time_unit)

    def _tokens(self, names: Sequence[str], column: str, text: str) -> pl.Series:
        """Tokens as the file counts them, else estimated from the text."""
        values = self.column(column)
        if values is not None:
            name = self.taken.names[column]
            if isinstance(values.dtype, pl.List | pl.Array | pl.Struct | pl.Object):
                raise UserError(
                    f"{self.source.path}: {name} is a column of {values.dtype}, expected a number a row; "
                    f"name another with `--column {column}=NAME`"
                )
            beside = [f"{name.rpartition('.')[0]}.{one}".lstrip(".") for one in CACHED]
            beside = [one for one in beside if one in names]
            if column == "prompt_tokens" and beside and name.endswith("input_tokens"):
                extra = self.source.table(beside).filter(pl.col("row").is_in(self.frame["row"].implode()))
                self.used |= set(beside)
                self.said.append(f"{name} leaves cached tokens out: added {' and '.join(beside)}")
                added = extra.select(
                    pl.sum_horizontal(pl.col(beside).cast(pl.Int64, strict=False).fill_null(0))
                )
                return values.cast(pl.Int64, strict=False) + added.to_series()
            return values
        words = self.column(text)
        if words is None or words.dtype != pl.String:
            raise absent(self.source, names, column, WANTED[column][0])
        how = f"UTF-8 bytes / {BYTES_PER_TOKEN:g}"
        self.said.append(f"{column} estimated from {self.taken.names[text]}: {how}")
        self.metadata["tokenizer"] = (
            f"{'prompt tokens ' if column == 'prompt_tokens' else ''}estimated: {how}"
        )
        return estimated(words)

    def _identity(self) -> pl.Series | None:
        values = self.column("request_id")
        if values is None or isinstance(values.dtype, pl.List | pl.Struct):
            return None
        values = values.cast(pl.String)
        unique = values.n_unique() == len(values) and values.null_count() == 0
        if unique or "request_id" in self.taken.sure:
            return values
        self.notes.append(
            f"{self.taken.names['request_id']} is not a different one for every row: rows are numbered instead"
        )
        return None

    def _hashes(self, out: dict[str, pl.Series]) -> None:
        values = self.column("prefix_hashes")
        if values is None:
            return
        name = self.taken.names["prefix_hashes"]
        lists = hashes.as_lists(values, f"{self.source.path}: {name}")
        without = lists.null_count()
        if without == len(lists):
            return
        if without:
            self.notes.append(f"{without:,} of {len(lists):,} requests have no {name}: they share nothing")
        try:
            size, told = hashes.size_of(
                lists,
                out["prompt_tokens"].cast(pl.Float64, strict=False),
                asked=self.reading.hash_block_size,
                column=self.column("hash_block_size"),
                known=self.metadata.get("hash_block_size"),
                usual=self.form.hash_block_size,
                named=name != "prefix_hashes",
            )
        except UserError as error:
            raise UserError(f"{self.source.path}: {error}") from None
        self.said += told
        known = pl.when(pl.col("ids").is_null()).then(pl.lit([], dtype=pl.List(pl.Int64))).otherwise("ids")
        out["prefix_hashes"] = lists.to_frame("ids").select(known.alias("ids"))["ids"] if without else lists
        self.metadata["hash_block_size"] = str(size)

    def _turns(self, frame: pl.DataFrame, times: Stamps | None) -> pl.DataFrame:
        """Turns of sessions, and the delays between them."""
        turn, delay, end = (self.column(name) for name in ("turn", "delay_s", "end"))
        if "session_id" not in frame.columns:
            for name in ("turn", "delay_s", "end"):
                self.used.discard(self.taken.names.get(name, ""))
            return frame
        if turn is not None and not isinstance(turn.dtype, pl.List | pl.Struct):
            frame = frame.with_columns(
                turn.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False).alias("turn")
            )
        if delay is not None:
            unit = self.taken.units.get("delay_s") or (
                "s" if "delay_s" in self.taken.sure else self.form.time_unit or "ms"
            )
            frame = frame.with_columns(sessions.seconds(delay, unit).alias("delay_s"))
        if times is None:
            return frame
        if end is not None and delay is None:
            raw = self.column("arrival_s")
            assert raw is not None
            unit_said = (
                self.reading.time_unit or self.taken.units.get("end") or self.taken.units.get("arrival_s")
            )
            both = stamps(
                pl.concat([raw, end.cast(raw.dtype, strict=False)]), unit_said, None, self.form.time_unit
            )
            starts, ends = both.seconds.head(len(raw)), both.seconds.tail(len(raw))
            frame = sessions.with_gaps(frame, starts, ends)
        frame, placed = sessions.placed(frame)
        if placed:
            self.notes.append(
                f"{placed:,} of {frame.height:,} requests have a delay after the turn before them and no arrival: a "
                "closed loop; placed as early as they could come, as if that turn took no time"
            )
        return frame

    def _assumed(self, names: Sequence[str], times: Stamps | None) -> None:
        """One line on what was taken for what, unless every column bears the schema's own name."""
        parts = []
        for column in ("arrival_s", "prompt_tokens", "output_tokens", "request_id", *OPTIONAL):
            name = self.taken.names.get(column)
            if name is None or name not in self.used or name == column:
                continue
            unit = f" ({times.said})" if column == "arrival_s" and times is not None else ""
            parts.append(f"{column} = {name}{unit}")
        if times is not None and times.absolute and self.taken.names["arrival_s"] == "arrival_s":
            parts.insert(0, f"arrival_s in {times.said}")
        parts += self.said
        idle = [_with_meant(name, self.taken.names) for name in names if name not in self.used]
        if idle:
            parts.append(f"not used: {few(idle, 12)}")
        if parts:
            self.metadata["reading"] = ", ".join(parts)


def _with_meant(name: str, taken: Mapping[str, str]) -> str:
    """The name, and which of the schema's columns it is perhaps a slip for."""
    near = closest(name, [column for column in COLUMNS if column not in taken], cutoff=0.8)
    return f"{name} (meant {near}?)" if near else name
