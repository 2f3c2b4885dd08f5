"""The progress bar: what it says is what was told."""

from __future__ import annotations

import io

from rich.console import Console

from parsim.progress import Bar, progress_bar


def test_a_bar_says_the_stage_and_how_far_it_is() -> None:
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, width=80), transient=False) as bar:
        bar.begin("measuring", 7, 2)
        bar.advance()
        bar.advance(2, "measuring slowly")
        bar.reach(6, 9)
    assert "measuring slowly" in drawn.getvalue() and "6/9" in drawn.getvalue()


def test_a_new_stage_starts_anew() -> None:
    drawn = io.StringIO()
    with progress_bar(Console(file=drawn, width=80), transient=False) as bar:
        bar.begin("one", 5)
        bar.advance(5)
        bar.begin("two", 3)
        bar.advance()
    assert "two" in drawn.getvalue() and "1/3" in drawn.getvalue()


def test_without_something_to_draw_on_nothing_is_drawn(capsys) -> None:  # type: ignore[no-untyped-def]
    with progress_bar(show=False) as bar:
        bar.begin("quiet", 3)
        bar.advance()
    Bar().reach(3, 3)
    assert capsys.readouterr() == ("", "")
