"""The figures of `info`."""

from __future__ import annotations

import polars as pl
import pytest

from parsim.traces import Corpus, Trace, read_trace
from parsim.traces.info import describe


def frame(**columns: list) -> pl.DataFrame:
    n = len(next(iter(columns.values())))
    return pl.DataFrame({"request_id": [str(i) for i in range(n)], **columns})


def test_by_hand():
    trace = Trace(
        frame(
            arrival_s=[0.0, 1.0, 1.0, 4.0],
            prompt_tokens=[8, 4, 12, 16],
            output_tokens=[1, 2, 3, 4],
            prefix_hashes=[[1, 2], [1], [1, 2, 3], [1, 2, 3, 4]],
        ),
        {"name": "t", "hash_block_size": "4"},
    )
    found = describe(trace)
    assert found["span_s"] == 4
    assert found["rate_per_s"] == pytest.approx(3 / 4)
    assert found["interarrival_cv"] == pytest.approx((14 / 9) ** 0.5 / (4 / 3))  # gaps 1, 0, 3
    assert found["zero_gaps"] == pytest.approx(1 / 3)
    assert found["prompt_tokens"] == pytest.approx(
        {"mean": 10, "p50": 10, "p90": 14.8, "p95": 15.4, "p99": 15.88, "max": 16}
    )
    assert found["spearman"] == pytest.approx(0.8)  # ranks 2, 1, 3, 4 against 1, 2, 3, 4
    assert found["kv_tokens"] == 50
    assert found["kv_tokens_per_request"]["max"] == 20
    assert found["prompt_tokens_per_s"] == pytest.approx(7.5)
    assert found["shared_blocks"] == pytest.approx(6 / 10)
    assert [lack.split(":")[0] for lack in found["lacks"]] == [
        "no prompt text",
        "no scores",
        "no clients or sessions",
    ]


def test_scores_are_ranked_over_all_and_within_clients():
    trace = Trace(
        frame(
            arrival_s=[0.0] * 6,
            prompt_tokens=[1] * 6,
            output_tokens=[1, 2, 3, 4, 5, 5],
            client_id=["all", "all", "all", "all", "score", "score"],
            **{"score.b": [1.0, 3.0, 2.0, 4.0, None, None], "score.a": [1.0] * 6},
        )
    )
    one, other = describe(trace)["rankings"]
    assert one == {"score": "a", "tau_b": None, "clients": {"all": None, "score": None}}
    tau = pytest.approx(4 / 6)
    assert other == {"score": "b", "tau_b": tau, "clients": {"all": tau, "score": None}}


def test_one_request_and_all_at_once_have_no_rate():
    one = describe(Trace(frame(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[1])))
    assert (one["rate_per_s"], one["interarrival_cv"], one["spearman"]) == (None, None, None)
    burst = describe(Trace(frame(arrival_s=[2.0] * 3, prompt_tokens=[1, 2, 3], output_tokens=[7, 7, 7])))
    assert (burst["span_s"], burst["rate_per_s"], burst["spearman"]) == (0, None, None)


def test_a_corpus_lacks_arrivals():
    found = describe(Corpus(frame(prompt_tokens=[1], output_tokens=[1], prompt=["x"], **{"score.a": [1.0]})))
    assert "rate_per_s" not in found
    assert found["lacks"][0].startswith("no arrivals")
    assert not any("score" in lack or "text" in lack for lack in found["lacks"])


def test_azure_conversation_as_counted_by_others(shared):
    """Counts in the shared data's README: 19,366 rows; 5.5 req/s, CV 1.09; 1155/1020/4142 and 211/129/601."""
    found = describe(read_trace(shared / "data/traces/azure-2023-conv.csv"))
    assert found["requests"] == 19_366
    assert found["rate_per_s"] == pytest.approx(5.53, abs=0.005)
    assert found["interarrival_cv"] == pytest.approx(1.09, abs=0.005)
    assert [round(found["prompt_tokens"][key]) for key in ("mean", "p50", "p99")] == [1155, 1020, 4142]
    assert [round(found["output_tokens"][key]) for key in ("mean", "p50", "p99")] == [211, 129, 601]
    assert found["spearman"] == pytest.approx(0.07, abs=0.005)


def test_mooncake_conversation_as_counted_by_others(shared):
    """README: 90% of gaps are zero, prompt mean 12,035, response 343, Spearman 0.07."""
    found = describe(read_trace(shared / "data/traces/mooncake-conversation.jsonl"))
    assert found["zero_gaps"] == pytest.approx(0.90, abs=0.005)
    assert round(found["prompt_tokens"]["mean"]) == 12_035
    assert round(found["output_tokens"]["mean"]) == 343
    assert found["spearman"] == pytest.approx(0.07, abs=0.005)
    assert not any("hashes" in lack for lack in found["lacks"])
