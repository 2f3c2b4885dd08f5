"""Finished points on disk: one file a point, whole or absent, so that an interrupted sweep resumes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from parsim.sweep.measure import Outcome
from traces.atomic import replacing


@dataclass(frozen=True)
class Store:
    """Outcomes by key under `folder`."""

    folder: Path

    def __contains__(self, key: str) -> bool:
        return (self.folder / f"{key}.json").is_file()

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome; its frames are written first, so that the JSON file stands for all of it."""
        for name, frame in (("requests", outcome.requests), ("series", outcome.series)):
            if frame is not None:
                with replacing(self.folder / f"{key}.{name}.parquet") as path:
                    frame.write_parquet(path)
        content = {
            "metrics": outcome.metrics,
            "facts": outcome.facts,
            "groups": outcome.groups,
            "bootstrap": outcome.bootstrap,
        }
        with replacing(self.folder / f"{key}.json") as path:
            path.write_text(json.dumps(content), encoding="utf-8")

    def get(self, key: str) -> Outcome:
        """The outcome of a finished point."""
        content = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
        return Outcome(**content, requests=self._frame(key, "requests"), series=self._frame(key, "series"))

    def _frame(self, key: str, name: str) -> pl.DataFrame | None:
        path = self.folder / f"{key}.{name}.parquet"
        return pl.read_parquet(path) if path.is_file() else None

    def clear(self) -> None:
        """Forget all points."""
        shutil.rmtree(self.folder, ignore_errors=True)
