"""A look at a trace."""

from __future__ import annotations

import re

import polars as pl
import pytest

from parsim.report.trace_page import trace_page
from parsim.traces import Corpus, Trace


def frame(**columns: list) -> pl.DataFrame:
    n = len(next(iter(columns.values())))
    return pl.DataFrame({"request_id": [str(i) for i in range(n)], **columns})


def test_the_page_tells_rate_sharing_clients_sessions_and_what_is_lacking():
    trace = Trace(
        frame(
            arrival_s=[0.0, 1.0, 2.0, 4.0],
            prompt_tokens=[8, 4, 12, 16],
            output_tokens=[1, 2, 3, 4],
            prefix_hashes=[[1, 2], [1], [1, 2, 3], [1, 2, 3, 4]],
            session_id=["a", "b", "a", "a"],
            client_id=["x", "x", "y", "<z>"],
        ),
        {"name": "t", "hash_block_size": "4", "reading": "arrival_s = <created>"},
    )
    page = trace_page(trace)
    assert "0.75 requests/s, more even than a Poisson process" in page
    assert re.search(r'data-number="shared_blocks"[^>]*data-value="0.6"', page)
    assert "2 sessions with 2 later turns" in page
    assert "open loop" in page
    assert "arrival_s = &lt;created&gt;" in page
    assert "&lt;z&gt;" in page and "<z>" not in page
    assert "no prompt text" in page and "no prefix hashes" not in page
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S*", "", page.split("<script")[0])


@pytest.mark.parametrize(
    "trace",
    [
        Trace(frame(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[1])),
        Trace(frame(arrival_s=[2.0] * 3, prompt_tokens=[1, 2, 3], output_tokens=[7, 7, 7])),
        Corpus(frame(prompt_tokens=[1, 5], output_tokens=[1, 9])),
    ],
)
def test_what_has_no_rate_has_a_page_too(trace):
    page = trace_page(trace)
    assert "requests/s" not in page.split("What it cannot answer")[0].split("<body")[-1]
    assert "How long they are" in page
