"""Fixtures that every test folder uses."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("parsim", deadline=None)  # no test depends on how fast the machine is
settings.load_profile("parsim")

MARKS = ("predictor", "vllm", "browser", "packaging", "recordings")
"""Of tests that need torch, vLLM, a browser, or minutes."""
HEAVY = re.compile(rf"^pytestmark = .*pytest\.mark\.({'|'.join(MARKS)})\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` does not even import the files of the others."""
    if config.option.markexpr != "quick" or collection_path.suffix != ".py":
        return None
    return True if HEAVY.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without one of these marks is quick."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in MARKS):
            item.add_marker("quick")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Quick tests that loaded torch or vLLM fail as a whole."""
    loaded = {"torch", "vllm"} & set(sys.modules)
    if session.config.option.markexpr == "quick" and loaded:
        print(f"\nquick tests imported {', '.join(sorted(loaded))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded data for development; a test that needs it is skipped where it is absent."""
    folder = Path(os.environ.get("PARSIM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"recorded data not found at {folder} (set PARSIM_SHARED)")
    return folder
