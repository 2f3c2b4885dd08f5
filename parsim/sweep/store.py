"""Finished points on disk: one file a point, whole or absent, so that an interrupted sweep resumes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from parsim.errors import UserError
from parsim.files import replacing
from parsim.sweep.measure import Outcome

FRAMES = ("requests", "series")
"""Attributes of an outcome that are tables, where the point asked for them."""


@dataclass(frozen=True)
class Store:
    """Outcomes by key under `folder`."""

    folder: Path

    def __contains__(self, key: str) -> bool:
        """Whether the point is there and whole; one that was damaged is run again."""
        return self._read(key) is not None

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; its frames are written first, so that the JSON file stands for all of it."""
        for name in FRAMES:
            frame = getattr(outcome, name)
            if frame is not None:
                with replacing(self.folder / f"{key}.{name}.parquet") as path:
                    frame.write_parquet(path)
        content = {
            "metrics": outcome.metrics,
            "facts": outcome.facts,
            "groups": outcome.groups,
            "frames": [name for name in FRAMES if getattr(outcome, name) is not None],
        }
        with replacing(self.folder / f"{key}.json") as path:
            path.write_text(json.dumps(content), encoding="utf-8")

    def get(self, key: str) -> Outcome:
        """The outcome of a finished point.

        Raises:
            UserError: it is not there any more, or damaged.
        """
        outcome = self._read(key)
        if outcome is None:
            raise UserError(
                f"{self.folder / key}.json: was deleted or damaged while the sweep ran; the same command runs it again"
            )
        return outcome

    def _read(self, key: str) -> Outcome | None:
        """The outcome, or None where a file of it is absent or damaged."""
        try:
            content = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            frames = {name: self._table(key, name) for name in content.pop("frames")}
            return Outcome(
                **content, requests=frames.pop("requests", None), series=frames.pop("series", None)
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError, pl.exceptions.PolarsError):
            return None

    def _table(self, key: str, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / f"{key}.{name}.parquet")

    def clear(self) -> None:
        """Forget all points."""
        shutil.rmtree(self.folder, ignore_errors=True)
