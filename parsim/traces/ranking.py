"""How well the scores that a trace carries rank its response lengths."""

from __future__ import annotations

from math import isnan
from typing import Any

import polars as pl

from parsim.stats import tau_b
from parsim.traces.trace import SCORE_PREFIX

CLIENTS_SHOWN = 6


def rankings(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Kendall's tau_b (ties corrected) of each score with the response length: over all requests that have the score,
    and within each of the clients with most requests, where there are several.

    Much of a tau over all may be order between kinds of traffic; within one it is lower. None where the scores or the
    lengths are constant: nothing is ranked then. One entry a score: score, tau_b, clients (client -> tau_b).
    """
    clients: list[str] = []
    if "client_id" in frame.columns:
        counts = (
            frame["client_id"]
            .drop_nulls()
            .value_counts()
            .sort("count", "client_id", descending=[True, False])
        )
        clients = counts["client_id"].to_list()[:CLIENTS_SHOWN] if counts.height > 1 else []
    names = [column for column in frame.columns if column.startswith(SCORE_PREFIX)]
    return [
        {
            "score": name.removeprefix(SCORE_PREFIX),
            "tau_b": _tau_b(frame, name),
            "clients": {
                client: _tau_b(frame.filter(pl.col("client_id") == client), name) for client in clients
            },
        }
        for name in sorted(names)
    ]


def _tau_b(frame: pl.DataFrame, score: str) -> float | None:
    known = frame.drop_nulls(score)
    found = tau_b(known[score], known["output_tokens"])
    return None if isnan(found) else found
