"""Sessions in a trace replayed as it was recorded: turns that come before the turn before them has ended."""

from __future__ import annotations

import polars as pl


def later_turns(requests: pl.DataFrame) -> int:
    """How many requests follow another one of their session."""
    if "session_id" not in requests.columns:
        return 0
    known = requests["session_id"].drop_nulls()
    return len(known) - known.n_unique()


def early_turns(requests: pl.DataFrame, ends: pl.Series) -> tuple[int, int]:
    """How many later turns of sessions arrive before the turn before them has ended, and of how many.

    An open-loop replay sends every request at its recorded time, whether or not the answer that it replies to is there;
    a real client would have waited. The larger the share, the less an open-loop replay says about sessions.

    Args:
        requests: a trace's rows; without `session_id` there are no turns: (0, 0).
        ends: when each request ended, in seconds of the same clock; null where it did not.
    """
    if "session_id" not in requests.columns:
        return 0, 0
    order = ["turn", "arrival_s"] if "turn" in requests.columns else ["arrival_s"]
    turns = (
        requests.with_columns(_end=ends)
        .drop_nulls("session_id")
        .sort("session_id", *order, maintain_order=True)
    )
    later = turns.with_columns(
        _before=pl.col("_end").shift(1).over("session_id"), _at=pl.int_range(pl.len()).over("session_id")
    )
    later = later.filter(pl.col("_at") > 0)
    return int((later["arrival_s"] < later["_before"]).sum()), later.height
