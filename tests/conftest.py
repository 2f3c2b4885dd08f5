"""Fixtures that every test folder uses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded data for development; a test that needs it is skipped where it is absent."""
    folder = Path(os.environ.get("PARSIM_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"recorded data not found at {folder} (set PARSIM_SHARED)")
    return folder
