"""Prefix hashes as files write them: signed and unsigned numbers, hexadecimal or any text; and their block's
size.
"""

from __future__ import annotations

import polars as pl

from parsim.errors import UserError

SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 8, 4096)
"""Usual tokens per hash, tried where neither the file nor the user says."""
FITTING = 0.95


def as_lists(column: pl.Series, where: str) -> pl.Series:
    """Lists of int64 that are equal where the file's ids are; null where a row has none.

    Text is a list as JSON writes it (`[1, 2]`) or ids parted by commas, semicolons, bars or blanks. Whole numbers of
    64 bits, signed or not, keep their bits; any other ids are numbered in their order.

    Raises:
        UserError: the column holds neither lists nor text; `where` says which.
    """
    kind = column.dtype
    if kind == pl.String:
        inner = column.str.strip_chars("[](){} ").str.replace_all(r"['\"\s]*[,;|\s]['\"\s]*", ",")
        lists = inner.str.strip_chars("'\",").str.split(",")
        frame = lists.to_frame("ids").select(
            pl.when(pl.col("ids").list.len() == 1, pl.col("ids").list.first() == "")
            .then(pl.lit([], dtype=pl.List(pl.String)))
            .otherwise("ids")
            .alias("ids")
        )
    elif isinstance(kind, pl.List | pl.Array):
        frame = column.cast(pl.List(pl.String), strict=False).to_frame("ids")
    else:
        raise UserError(f"{where} is a column of {kind}; expected lists of ids")
    ids = frame.with_row_index("at").explode("ids", empty_as_null=False, keep_nulls=False)
    text = ids["ids"].str.strip_chars()
    numbers = text.cast(pl.Int64, strict=False)
    if numbers.null_count() > text.null_count():
        unsigned = text.cast(pl.UInt64, strict=False)
        signed = numbers.is_not_null() | unsigned.is_not_null()
        if bool(signed.filter(text.is_not_null()).all()):
            numbers = numbers.zip_with(numbers.is_not_null(), unsigned.reinterpret(signed=True))
        else:
            numbers = text.rank("dense").cast(pl.Int64)
    grouped = ids.select("at", ids=numbers).group_by("at", maintain_order=True).agg("ids")
    joined = (
        frame.with_row_index("at")
        .select("at", empty=pl.col("ids").list.len() == 0)
        .join(grouped, on="at", how="left", maintain_order="left")
    )
    empty = pl.when(pl.col("empty")).then(pl.lit([], dtype=pl.List(pl.Int64))).otherwise("ids")
    return joined.select(empty.alias("ids"))["ids"]


def block_size(lists: pl.Series, tokens: pl.Series, usual: int | None) -> int | None:
    """Tokens per hash that the lengths allow: `usual` if it fits, else the usual size that does; None if none or
    several do."""
    frame = pl.DataFrame({"n": lists.list.len().cast(pl.Int64), "tokens": tokens}).drop_nulls()
    frame = frame.filter(pl.col("n") > 0, pl.col("tokens") > 0)
    if frame.is_empty():
        return usual or SIZES[0]
    sizes = [size for size in (usual, *SIZES) if size is not None]
    shares = frame.select(
        ((pl.col("n") >= pl.col("tokens") // size) & (pl.col("n") <= (pl.col("tokens") / size).ceil()))
        .mean()
        .alias(f"{at}")
        for at, size in enumerate(sizes)
    ).row(0)
    if usual is not None and shares[0] >= FITTING:
        return usual
    fitting = sorted({size for size, share in zip(sizes, shares, strict=True) if share >= FITTING})
    return fitting[0] if len(fitting) == 1 else None


def size_of(
    lists: pl.Series,
    tokens: pl.Series,
    *,
    asked: int | None,
    column: pl.Series | None,
    known: str | None,
    usual: int | None,
    named: bool,
) -> tuple[int, list[str]]:
    """Tokens per hash, and what is to be said of how they were found.

    Args:
        lists, tokens: the hashes and the prompt's length of each request.
        asked: what the user says.
        column: of the file, the same in every row.
        known: what its metadata says.
        usual: the format's.
        named: whether the column bears a foreign name; the schema's own comes with its size.

    Raises:
        UserError: nothing tells the size, or the file contradicts itself.
    """
    if asked is not None:
        return asked, []
    if column is not None:
        sizes = column.cast(pl.String).drop_nulls().unique().to_list()
        if len(sizes) != 1:
            raise UserError(f"hash_block_size takes {len(sizes)} values; give every row the same one")
        known = str(sizes[0])
    if known is not None:
        if not known.isdigit() or int(known) < 1:
            raise UserError(f"hash_block_size is {known}; expected the tokens per hash, from 1")
        return int(known), []
    if not named:
        raise UserError(
            "has prefix_hashes but hash_block_size is missing; add it: the tokens per hash (`--hash-block-size`)"
        )
    size = block_size(lists, tokens, usual)
    if size is None and usual is None:
        raise UserError(
            "the lengths do not tell how many tokens a prefix hash stands for; say it with `--hash-block-size`"
        )
    said = [f"{size} tokens a hash, by the lengths"] if size is not None and size != usual else []
    return size or usual or SIZES[0], said
