"""Drawn traces at the ends of what can be asked for: a trace that holds the schema, or one line; never a hang."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.traces import Lognormal, UserError, join, parse_arrivals, synthesize
from parsim.traces.checks import MAX_ARRIVAL_S, MAX_TOKENS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("poisson(rate=1e-300)", "rate is 1e-300, must lie between 1e-09 and 1e\\+09"),
        ("poisson(rate=1e300)", "rate is 1e\\+300, must lie between"),
        ("gamma(cv=1e-200)", "cv is 1e-200, must lie between"),
        ("gamma(cv=1e200)", "cv is 1e\\+200, must lie between"),
        ("burst(n=1e300)", "n is 1e\\+300, must lie between"),
        ("burst(every_s=1e308)", "every_s is 1e\\+308, must lie between"),
        ("diurnal(period_s=1e300)", "period_s is 1e\\+300, must lie between"),
        ("poisson(rate=1, rate=2)", "rate is given twice"),
    ],
)
def test_settings_out_of_range(text, said):
    with pytest.raises(UserError, match=said):
        parse_arrivals(text)


@pytest.mark.parametrize(
    "text",
    [
        "gamma(rate=1, cv=1e-9)",
        "gamma(rate=1, cv=1e9)",
        "burst(n=1, every_s=1e-9)",
        "diurnal(rate=1, amplitude=1, period_s=1e9)",
        "diurnal(rate=1e9, amplitude=1, period_s=1e9)",
        "diurnal(rate=1, period_s=1e-9)",
    ],
)
def test_settings_at_the_ends_give_ascending_finite_times(text):
    times = parse_arrivals(text).draw(50, seed=1)
    assert len(times) == 50
    assert times[0] == 0
    assert (np.diff(times) >= 0).all()
    assert times[-1] <= MAX_ARRIVAL_S


def test_a_draw_that_lasts_too_long_is_refused():
    with pytest.raises(UserError, match=r"request 50 comes after .* s, more than 1e\+10; ask for fewer"):
        parse_arrivals("poisson(rate=1e-9)").draw(50, seed=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"prompt_mean": float("inf")}, "prompt_mean is inf, must be <= 1,000,000,000"),
        ({"output_cv": 1e300}, "output_cv is 1e\\+300, must be <= 1,000"),
        ({"prompt_mean": "x"}, "prompt_mean is 'x', must be a number"),
        ({"max_tokens": "x"}, "max_tokens is 'x', must be a whole number"),
        ({"correlation": "x"}, "correlation is 'x', must be a number"),
    ],
)
def test_lengths_out_of_range(settings, said):
    with pytest.raises(UserError, match=said):
        synthesize("poisson(rate=1)", settings, 5)


def test_lengths_beyond_a_request_are_refused_or_cut():
    with pytest.raises(UserError, match="draw more than 1,000,000,000 tokens; set max_tokens"):
        Lognormal(prompt_mean=1e9).draw(100, np.random.default_rng(0))
    prompt, _ = Lognormal(prompt_mean=1e9, max_tokens=MAX_TOKENS).draw(100, np.random.default_rng(0))
    assert prompt.max() == MAX_TOKENS


def test_a_negative_seed_is_refused_everywhere():
    for draw in (
        lambda: synthesize("poisson(rate=1)", {}, 5, seed=-1),
        lambda: join(synthesize("poisson(rate=1)", {}, 5).frame, "poisson(rate=1)", seed=-1),
    ):
        with pytest.raises(UserError, match="seed -1: must be 0 or more"):
            draw()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: synthesize(5, {}, 5), "arrivals: 5 is no arrival process; write poisson"),
        (lambda: synthesize("poisson(rate=1)", 5, 5), "lengths: 5 is no set of settings"),
        (lambda: synthesize("poisson(rate=1)", {}, "x"), "n: 'x' is no whole number"),
        (lambda: join(5, "poisson(rate=1)"), "corpus: 5 is no file"),
        (lambda: join("corpus.jsonl", 5), "arrivals: 5 is no trace file or arrival process"),
        (lambda: join("corpus.jsonl", "poisson(rate=1)", n="x"), "n: 'x' is no whole number"),
    ],
)
def test_arguments_of_another_type(call, said):
    """As a sweep file may give them."""
    with pytest.raises(UserError, match=said):
        call()
