"""`parsim validate parity` without what it needs."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from parsim.errors import UserError
from parsim.validate.cli import app


def test_without_hypothesis_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsim.validate.live.live_engine.require_vllm", lambda: None)
    for name in [name for name in sys.modules if name.startswith("parsim.validate.parity")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("hypothesis", "hypothesis.strategies"):
        monkeypatch.setitem(sys.modules, name, None)
    done = CliRunner().invoke(app, ["parity", "--cases", "1"])
    assert isinstance(done.exception, UserError)
    assert "pip install 'parsim[vllm]'" in str(done.exception)


def test_without_vllm_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    done = CliRunner().invoke(app, ["parity"])
    assert isinstance(done.exception, UserError) and "vLLM is not installed" in str(done.exception)
