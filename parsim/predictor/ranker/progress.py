"""A progress bar for training on stderr, or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Bar:
    """Counts steps; shows them if it was given something to show them on."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def advance(self, message: str) -> None:
        """One step further, with what to say about it."""
        if self._progress is not None:
            self._progress.update(self._task, advance=1, description=message)


@contextlib.contextmanager
def progress_bar(show: bool, steps: int, done: int = 0) -> Iterator[Bar]:
    """A bar of so many steps, `done` of them before, while the block runs."""
    if not show:
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        if done:
            progress.console.print(f"an unfinished run is continued after step {done:,} of {steps:,}")
        yield Bar(progress, progress.add_task("training", total=steps, completed=done))
