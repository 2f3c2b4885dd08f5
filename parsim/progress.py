"""One line of progress with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Bar:
    """Says what is going on, how far it is and how long the rest takes; says nothing without something to draw on."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("starting", total=None)

    def begin(self, what: str, total: int | None, done: int = 0) -> None:
        """A new stage of `total` units (None: not known yet), `done` of them before."""
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, total=total, completed=done, description=what)

    def advance(self, units: int = 1, what: str | None = None) -> None:
        """So many units further; `what` says of the stage what is true by now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, advance=units, description=what)

    def reach(self, done: int, total: int | None) -> None:
        """`done` units of `total`, where the size of the stage is only known by now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def progress_bar(
    console: Console | None = None,
    *,
    show: bool = True,
    units: Literal["count", "bytes"] = "count",
    transient: bool = True,
) -> Iterator[Bar]:
    """A bar while the block runs.

    Args:
        console: where to draw; stdout if left out.
        show: False for a bar that draws nothing.
        units: what is counted.
        transient: whether the bar vanishes when the block ends.
    """
    if not show:
        yield Bar()
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    done = DownloadColumn() if units == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=transient) as progress:
        yield Bar(progress)
