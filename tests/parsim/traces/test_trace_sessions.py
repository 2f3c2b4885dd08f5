"""Turns of sessions in an open-loop replay."""

from __future__ import annotations

import polars as pl

from parsim.traces.sessions import early_turns


def test_turns_that_come_before_the_answer_to_the_turn_before_them():
    requests = pl.DataFrame(
        {"session_id": ["a", "b", "a", None, "a", "b"], "arrival_s": [0.0, 0.5, 1.0, 1.5, 2.0, 9.0]}
    )
    ends = pl.Series([3.0, 4.0, 1.5, 2.0, 5.0, 10.0])
    assert early_turns(requests, ends) == (1, 3)  # of a's turns the second came at 1, the first ended at 3
    assert early_turns(requests, pl.Series([None] * 6, dtype=pl.Float64)) == (0, 3)
    assert early_turns(requests.drop("session_id"), ends) == (0, 0)
