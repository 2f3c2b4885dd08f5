from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parsim.errors import UserError
from parsim.predictor.scoring import cost
from parsim.predictor.scoring.cost import fit_cost


def test_fit_finds_the_terms() -> None:
    rng = np.random.default_rng(0)
    prompts, tokens = rng.integers(1, 65, 40).astype(float), rng.integers(10, 5000, 40).astype(float)
    seconds = (0.002 + 0.0005 * prompts + 0.00002 * tokens) * rng.uniform(0.98, 1.02, 40)
    found = fit_cost(prompts, tokens, seconds, "made up")
    assert found.base_s == pytest.approx(0.002, rel=0.15)
    assert found.prompt_s == pytest.approx(0.0005, rel=0.1)
    assert found.token_s == pytest.approx(0.00002, rel=0.1)
    assert found.fit_error is not None and found.fit_error < 0.02


def test_a_place_that_cannot_be_written_is_found_before_the_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "measure_cost", lambda name: pytest.fail("measured"))
    with pytest.raises(UserError, match="is a folder"):
        cost.main("pars", tmp_path)


@pytest.mark.predictor
def test_nothing_is_written_where_there_is_no_predictor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(UserError, match="nowhere"):
        cost.main(str(tmp_path / "nowhere"), tmp_path / "cost.json")
    assert not list(tmp_path.iterdir())
