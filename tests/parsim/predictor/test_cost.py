from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parsim.predictor.cost import ScoringCost, fit_cost, read_cost
from traces.errors import UserError

COST = ScoringCost(base_s=0.1, prompt_s=0.01, token_s=0.001, max_tokens=100, max_batch=2)


def test_seconds_by_hand() -> None:
    """0.1 + 2 * 0.01 + (50 + 100) * 0.001: the second prompt's 400 tokens are cut to 100."""
    assert COST.seconds([50, 400]) == pytest.approx(0.27)


def test_ready_by_hand() -> None:
    """The first is alone: 1.0 + 0.1 + 0.01 + 0.01 = 1.12. The next three arrived meanwhile: two in one batch, which
    ends at 1.12 + 0.1 + 0.02 + 0.02 = 1.26, then one, 1.26 + 0.12 = 1.38. The last finds the worker idle."""
    arrival = np.array([1.0, 1.05, 1.06, 1.07, 9.0])
    ready = COST.ready_s(arrival, np.full(5, 10))
    assert ready.tolist() == pytest.approx([1.12, 1.26, 1.26, 1.38, 9.12])
    assert COST.busy_s(arrival, np.full(5, 10)) == pytest.approx(4 * 0.1 + 5 * 0.01 + 50 * 0.001)


def test_a_burst_is_served_in_full_batches() -> None:
    ready = COST.ready_s(np.zeros(101), np.full(101, 10))
    assert len(np.unique(ready)) == 51
    assert (np.diff(ready) >= 0).all()


def test_fit_finds_the_terms() -> None:
    rng = np.random.default_rng(0)
    prompts, tokens = rng.integers(1, 65, 40).astype(float), rng.integers(10, 5000, 40).astype(float)
    seconds = (0.002 + 0.0005 * prompts + 0.00002 * tokens) * rng.uniform(0.98, 1.02, 40)
    found = fit_cost(prompts, tokens, seconds, "made up")
    assert found.base_s == pytest.approx(0.002, rel=0.15)
    assert found.prompt_s == pytest.approx(0.0005, rel=0.1)
    assert found.token_s == pytest.approx(0.00002, rel=0.1)
    assert found.fit_error is not None and found.fit_error < 0.02


def test_a_broken_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="measure with"):
        read_cost(tmp_path / "none.json")
    (tmp_path / "cost.json").write_text("{")
    with pytest.raises(UserError, match="not a scoring cost"):
        read_cost(tmp_path / "cost.json")
