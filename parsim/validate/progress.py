"""One line of progress with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ProgressBar:
    """One line that says what is going on and how long it will take."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def begin(self, what: str, total: int) -> None:
        """A new stage of `total` units."""
        self._progress.reset(self._task, total=total, description=what)

    def advance(self, what: str, done: int) -> None:
        """`done` more units."""
        self._progress.update(self._task, advance=done, description=what)

    def within(self, what: str, total: int) -> None:
        """One more unit of a stage whose size is known by now."""
        self._progress.update(self._task, advance=1, total=total, description=what)


@contextmanager
def progress_bar(console: Any) -> Iterator[ProgressBar]:
    """A bar with the time left."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressBar(progress)
