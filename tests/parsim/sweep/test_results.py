"""Reading a finished sweep back: whole, or one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from parsim.errors import UserError
from parsim.sweep.results import read_results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    fields = {
        "trace": {"bundled": True, "requests": 20},
        "policies": ["fcfs"],
        "loads": [1],
        "seeds": [0],
        "studies": [],
    }
    run_sweep(parse_spec(fields, "s"), folder, Console(quiet=True), jobs=1)
    return folder


@pytest.mark.parametrize("name", ["facts.json", "results.parquet", "series.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"PAR1"])
def test_damaged_results_are_one_line(finished: Path, name: str, content: bytes | None) -> None:
    path = finished / name
    whole = path.read_bytes()
    try:
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(UserError, match=r"^\S+: .*run (the sweep again|parsim sweep)$") as caught:
            read_results(finished)
        assert "\n" not in str(caught.value)
    finally:
        path.write_bytes(whole)
    assert read_results(finished).facts["focus_load"] == 1.0


def test_a_place_without_a_sweep_is_told(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UserError, match="no finished sweep here"):
            read_results(folder)
