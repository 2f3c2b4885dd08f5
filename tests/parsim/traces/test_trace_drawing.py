"""Arrival processes, lengths, join, redraw and jitter against what they promise."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import kstest, spearmanr

from parsim.traces import (
    Arrivals,
    Lognormal,
    Resampled,
    Trace,
    UserError,
    bundled_trace,
    join,
    parse_arrivals,
    redraw,
    synthesize,
)
from parsim.traces.draw.jitter import jitter, tick_s

N = 100_000


def gaps(process: str, n: int = N) -> np.ndarray:
    return np.diff(parse_arrivals(process).draw(n, seed=1))


def test_poisson_gaps_are_exponential():
    assert kstest(gaps("poisson(rate=4)", 20_000), "expon", args=(0, 1 / 4)).pvalue > 0.01


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_keeps_rate_and_gives_the_cv(cv):
    drawn = gaps(f"gamma(rate=4, cv={cv})")
    assert drawn.mean() == pytest.approx(1 / 4, rel=0.05)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.05)


def test_burst_is_n_at_once_then_a_pause():
    assert parse_arrivals("burst(n=3, every_s=10)").draw(7, seed=0).tolist() == [0, 0, 0, 10, 10, 10, 20]


def test_diurnal_rate_follows_the_cosine():
    """Expected share of arrivals in the middle half of a period: 1/2 + amplitude/pi."""
    period, amplitude = 1000.0, 0.8
    times = parse_arrivals(f"diurnal(rate=50, amplitude={amplitude}, period_s={period:g})").draw(
        100_000, seed=2
    )
    whole = times[times < 2 * period]
    assert len(whole) == pytest.approx(50 * 2 * period, rel=0.02)
    phase = whole % period
    share = np.mean((phase > period / 4) & (phase < 3 * period / 4))
    assert share == pytest.approx(0.5 + amplitude / np.pi, abs=0.01)


def test_same_seed_same_times_and_load_only_scales():
    slow, fast = (Arrivals("poisson", {"rate": rate}).draw(50, seed=3) for rate in (1.0, 2.0))
    assert slow == pytest.approx(2 * fast)
    assert slow[0] == 0
    assert not np.array_equal(slow, Arrivals("poisson", {"rate": 1.0}).draw(50, seed=4))


def test_process_text_survives_a_round_trip():
    process = parse_arrivals(" gamma( rate=0.1234567890123, cv=2 ) ")
    assert parse_arrivals(str(process)) == process
    assert parse_arrivals("diurnal(rate=3)").settings == {"rate": 3, "amplitude": 0.8, "period_s": 86_400}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("posson(rate=1)", "unknown arrival process 'posson'; did you mean 'poisson'"),
        ("poisson(rte=1)", "arrival process poisson has no 'rte'; it takes rate"),
        ("poisson(rate=-1)", "rate is -1, must be a positive number"),
        ("poisson(rate=0)", "rate is 0, must be a positive number"),
        ("poisson(rate=nan)", "rate is nan, must be a positive number"),
        ("poisson(rate=x)", "'rate=x' is not name=number"),
        ("poisson rate", "is not understood; write poisson"),
        ("diurnal(amplitude=2)", "amplitude is 2, must be <= 1"),
        ("burst(n=1.5)", "n is 1.5, must be a whole number"),
    ],
)
def test_bad_processes(text, said):
    with pytest.raises(UserError, match=said):
        parse_arrivals(text)


@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.3, 0.9])
def test_lognormal_means_spreads_and_rank_correlation(correlation):
    lengths = Lognormal(508, 1.0, 212, 0.9, correlation)
    prompt, output = lengths.draw(N, np.random.default_rng(5))
    assert prompt.mean() == pytest.approx(508, rel=0.02)
    assert output.mean() == pytest.approx(212, rel=0.02)
    assert prompt.std() / prompt.mean() == pytest.approx(1.0, rel=0.05)
    assert spearmanr(prompt, output).statistic == pytest.approx(correlation, abs=0.015)
    assert min(prompt.min(), output.min()) >= 1


def test_resampled_pairs_stay_pairs_and_copula_keeps_marginals():
    rows = pl.DataFrame({"prompt_tokens": [1, 2, 3, 4], "output_tokens": [40, 30, 20, 10]})
    prompt, output = Resampled(rows).draw(1000, np.random.default_rng(0))
    assert set(zip(prompt.tolist(), output.tolist(), strict=True)) == set(rows.rows())
    prompt, output = Resampled(rows, 0.8).draw(N, np.random.default_rng(0))
    assert np.bincount(prompt)[1:] / N == pytest.approx([0.25] * 4, abs=0.01)
    assert spearmanr(prompt, output).statistic > 0.7


def test_bad_lengths():
    with pytest.raises(UserError, match="output_cv is 0, must be > 0"):
        Lognormal(output_cv=0)
    with pytest.raises(UserError, match="correlation is 2, must be between -1 and 1"):
        Lognormal(correlation=2)
    with pytest.raises(UserError, match="asked for 0 requests"):
        synthesize(Arrivals("poisson", {}), Lognormal(), 0)


CORPUS = pl.DataFrame(
    {
        "request_id": ["a", "b", "c"],
        "prompt": ["pa", "pb", "pc"],
        "prompt_tokens": [1, 2, 3],
        "output_tokens": [10, 20, 30],
        "score.pars": [0.1, 0.2, 0.3],
    }
)


def test_join_keeps_rows_whole_and_uses_each_once():
    trace = join(CORPUS, Arrivals("poisson", {"rate": 1.0}), seed=1)
    assert sorted(trace.frame.drop("arrival_s").rows()) == sorted(
        CORPUS.select("request_id", "prompt_tokens", "output_tokens", "prompt", "score.pars").rows()
    )
    assert trace.score_names == ["pars"]
    assert trace.frame["arrival_s"].is_sorted()


def test_join_takes_recorded_arrivals_as_they_are():
    recorded = Trace(pl.DataFrame({"arrival_s": [0.0, 1.5, 1.5, 9.0]}), {"name": "rec"})
    trace = join(CORPUS, recorded, seed=1)
    assert trace.frame["arrival_s"].to_list() == [0.0, 1.5, 1.5]
    with pytest.raises(UserError, match="asked for 5 requests, but rec has 4 arrivals"):
        join(CORPUS, recorded, n=5)


def test_join_repeats_rows_only_when_asked_for_more_and_marks_them():
    trace = join(CORPUS, Arrivals("poisson", {}), seed=1, n=50)
    ids = trace.frame["request_id"]
    assert ids.n_unique() == 50
    bare = ids.str.replace(r"~\d+$", "")
    assert set(bare) == {"a", "b", "c"}
    expected = {"a": 1, "b": 2, "c": 3}
    assert trace.frame["prompt_tokens"].to_list() == [expected[name] for name in bare]
    with pytest.raises(UserError, match="asked for 4 requests of 3 rows without repeats"):
        join(CORPUS, Arrivals("poisson", {}), n=4, replace=False)


def test_join_and_synthesize_take_what_a_sweep_file_can_hold(tmp_path):
    from parsim.traces import Corpus, write_trace

    process, path = Arrivals("poisson", {"rate": 2.0}), tmp_path / "c.parquet"
    write_trace(Trace(CORPUS.with_columns(arrival_s=pl.lit(0.0)), {"licence": "X"}), path)
    by_file = join(str(path), "poisson(rate=2)", seed=4, n=9)
    assert by_file.frame.equals(join(Corpus(CORPUS), process, seed=4, n=9).frame)
    assert by_file.metadata["licence"] == "X"
    assert join(CORPUS, path, seed=4).frame["arrival_s"].to_list() == [0, 0, 0]
    settings = {"prompt_mean": 90, "output_cv": 2.0, "correlation": 0.5}
    drawn = synthesize("poisson(rate=2)", settings, 20, seed=1)
    assert drawn.frame.equals(synthesize(process, Lognormal(**settings), 20, seed=1).frame)
    resampled = synthesize("poisson(rate=2)", {"from": path}, 20, seed=1)
    assert resampled.frame.equals(synthesize(process, Resampled(CORPUS), 20, seed=1).frame)
    with pytest.raises(UserError, match="lengths: no setting 'promt_mean'; did you mean 'prompt_mean'"):
        synthesize("poisson(rate=2)", {"promt_mean": 3}, 20)


def test_join_seeds():
    drawn = [join(CORPUS, Arrivals("poisson", {}), seed=seed, n=40).frame for seed in (1, 1, 2)]
    assert drawn[0].equals(drawn[1])
    assert not drawn[0].equals(drawn[2])


def test_join_without_lengths_or_ids():
    with pytest.raises(UserError, match="corpus has no column output_tokens; found: prompt_tokens"):
        join(CORPUS.select("prompt_tokens"), Arrivals("poisson", {}))
    trace = join(CORPUS.drop("request_id"), Arrivals("poisson", {}))
    assert sorted(trace.frame["request_id"]) == ["0", "1", "2"]


def test_redraw_of_a_recorded_trace_is_the_trace():
    recorded = Trace(CORPUS, {"name": "rec"})
    assert redraw(recorded, 7) is recorded


def test_redraw_of_a_join_draws_arrivals_and_rows_and_can_be_repeated():
    trace = join(
        CORPUS, Arrivals("gamma", {"rate": 2.0, "cv": 2.0}), seed=1, n=200, metadata={"licence": "X"}
    )
    again = redraw(redraw(trace, 5), 6)
    assert again.frame.equals(redraw(redraw(trace, 5), 6).frame)
    assert not again.frame["arrival_s"].equals(trace.frame["arrival_s"])
    assert again.frame["request_id"].n_unique() == len(again) == 200
    assert set(again.frame["output_tokens"]) <= {10, 20, 30}
    assert again.metadata["licence"] == "X"
    assert json.loads(again.metadata["recipe"])["arrivals"] == "gamma(rate=2, cv=2)"


def test_redraw_keeps_recorded_arrivals():
    recorded = Trace(pl.DataFrame({"arrival_s": [0.0, 1.5, 9.0]}), {"name": "rec"})
    trace = join(CORPUS, recorded, seed=1)
    assert redraw(trace, 9).frame["arrival_s"].to_list() == [0.0, 1.5, 9.0]


def test_redraw_of_lognormal_lengths_is_synthesize_under_that_seed():
    process, lengths = Arrivals("poisson", {"rate": 3.0}), Lognormal(100, 1, 50, 1, 0.2, max_tokens=400)
    first = synthesize(process, lengths, 300, seed=1)
    assert redraw(first, 2).frame.equals(synthesize(process, lengths, 300, seed=2).frame)


def test_head_of_a_drawn_trace_is_not_redrawn():
    trace = synthesize(Arrivals("poisson", {}), Lognormal(), 10)
    cut = trace.head(4)
    assert cut.frame.equals(trace.frame.head(4))
    assert redraw(cut, 3) is cut
    assert cut.metadata["notes"] == "first 4 of 10 requests"
    assert trace.head(10) is trace
    with pytest.raises(UserError, match="first 0 requests, must be >= 1"):
        trace.head(0)


def ticked() -> Trace:
    times = [0.0] * 4 + [3.0] * 3 + [9.001] * 5
    return Trace(pl.DataFrame({"request_id": [str(i) for i in range(12)], "arrival_s": times}))


def test_ticks_are_found_and_arrivals_stay_inside_theirs():
    trace = ticked()
    assert tick_s(trace) == 3.0
    spread = jitter(trace, seed=1, tick=3.0)
    moved = dict(zip(spread.frame["request_id"], spread.frame["arrival_s"], strict=True))
    first = [moved[str(i)] for i in range(4)]
    assert min(first) == 0
    assert max(first) < 3
    assert all(9.001 - 3 < moved[str(i)] < 12.001 for i in range(7, 12))
    assert spread.frame["arrival_s"].is_sorted()
    assert "spread uniformly inside ticks of 3.000 s, seed 1" in spread.metadata["notes"]


def test_a_trace_on_no_tick_is_left_alone():
    trace = synthesize(Arrivals("poisson", {}), Lognormal(), 100)
    assert tick_s(trace) is None
    assert jitter(trace) is trace


def test_mooncake_stands_on_ticks_of_three_seconds(shared):
    from parsim.traces import read_trace

    trace = read_trace(shared / "data/traces/mooncake-conversation.jsonl")
    assert tick_s(trace) == pytest.approx(3.0, abs=0.002)
    assert trace.metadata["notes"].startswith("time stamps stand on ticks of 3 s")


def test_bundled_trace_is_small_recorded_and_only_of_held_out_prompts():
    from parsim.studies.bundle import MODEL, is_held_out
    from parsim.traces.trace import BUNDLED

    trace = bundled_trace()
    assert BUNDLED.stat().st_size < 1_000_000
    assert len(trace) == 4095
    assert all(map(is_held_out, trace.frame["request_id"]))
    assert set(trace.frame["client_id"]) == {"mmlu_pro", "zeroeval_gsm", "zeroeval_math-l5"}
    assert trace.metadata["model"] == MODEL
    assert {"source", "licence", "tokenizer", "recipe"} <= trace.metadata.keys()
    assert not trace.has_prompts


def test_bundled_trace_can_be_rebuilt(shared):
    from parsim.studies.bundle import build

    rebuilt = build(shared / "data/lengths")
    assert bundled_trace().frame.select(rebuilt.frame.columns).equals(rebuilt.frame)
