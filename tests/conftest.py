"""Fixtures that every test folder uses."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

from parsim.cli import main

settings.register_profile("deep", deadline=None)  # no test depends on how fast the machine is
settings.register_profile("quick", deadline=None, max_examples=settings.default.max_examples // 5)

MARKS = ("predictor", "vllm", "browser", "packaging", "recordings", "deep")
"""Of tests that need torch, vLLM, a browser, or more than a second or two."""
HEAVY = re.compile(rf"^pytestmark = .*pytest\.mark\.({'|'.join(MARKS)})\b", re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    """`-m quick` draws a fifth of the examples; a test file with a number of its own derives it from the profile's."""
    settings.load_profile("quick" if config.option.markexpr == "quick" else "deep")


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
def called() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `parsim ARGUMENTS` in this process, a second faster than in one of its own: code and both streams."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        words = ["parsim", *arguments]
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            mock.patch.object(sys, "argv", words),
            pytest.raises(SystemExit) as end,
        ):
            main()
        code = end.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded data for development; a test that needs it is skipped where it is absent."""
    folder = Path(os.environ.get("PARSIM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"recorded data not found at {folder} (set PARSIM_SHARED)")
    return folder
