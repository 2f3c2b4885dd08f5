"""Finished points on disk: whole, or run again."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from parsim.errors import UserError
from parsim.sweep.measure import Outcome
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec
from parsim.sweep.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    kept = Store(tmp_path)
    requests = pl.DataFrame({"finish_s": [1.0, 2.0]})
    kept.put("k", Outcome({"m": 1.0}, {"f": "x"}, [{"group": "1"}], requests))
    return kept


def test_an_outcome_comes_back_as_it_was(store: Store) -> None:
    assert "k" in store and "other" not in store
    found = store.get("k")
    assert (found.metrics, found.facts, found.groups) == ({"m": 1.0}, {"f": "x"}, [{"group": "1"}])
    assert found.requests is not None and found.requests["finish_s"].to_list() == [1.0, 2.0]
    assert found.series is None


@pytest.mark.parametrize("content", [b"", b'{"metr', b"{}", b"null", b"[]", b"5", b"\xff"])
def test_a_damaged_point_counts_as_absent(store: Store, content: bytes) -> None:
    (store.folder / "k.json").write_bytes(content)
    assert "k" not in store
    with pytest.raises(UserError, match="was deleted or damaged while the sweep ran"):
        store.get("k")


def test_a_damaged_or_missing_table_of_a_point_counts_as_absent(store: Store) -> None:
    table = store.folder / "k.requests.parquet"
    table.write_bytes(b"PAR1")
    assert "k" not in store
    table.unlink()
    assert "k" not in store


@pytest.mark.deep
def test_a_sweep_runs_damaged_points_again_to_the_same_bytes(tmp_path: Path) -> None:
    fields = {
        "trace": {"bundled": True, "requests": 30},
        "set": {"max_num_seqs": 2},
        "policies": ["fcfs", "oracle"],
        "loads": [1],
        "seeds": [0],
        "studies": ["timeline"],
    }
    run_sweep(parse_spec(fields, "s"), tmp_path, Console(quiet=True), jobs=1)
    points = sorted((tmp_path / "points").glob("*"))
    whole = {path: path.read_bytes() for path in [*points, tmp_path / "results.parquet"]}
    for number, path in enumerate(points):
        path.write_bytes(b"{" if number % 2 else b"")
    run_sweep(parse_spec(fields, "s"), tmp_path, Console(quiet=True), jobs=1)
    assert {path: path.read_bytes() for path in whole} == whole


def test_an_engine_that_can_run_nothing_is_told(tmp_path: Path) -> None:
    fields = {"trace": {"bundled": True, "requests": 5}, "set": {"max_model_len": 2}, "seeds": [0]}
    with pytest.raises(
        UserError, match=r"rejects every request of the trace \(the first: prompt \+ response of"
    ):
        run_sweep(parse_spec(fields, "s"), tmp_path, Console(quiet=True), jobs=1)
