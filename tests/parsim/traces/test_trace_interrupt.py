"""Ctrl-C in any command is one line and exit code 130."""

from __future__ import annotations

import pytest
import typer

from parsim.command import INTERRUPTED, run_cli


@pytest.mark.parametrize(("said", "line"), [(False, "interrupted: what was finished is kept\n"), (True, "")])
def test_an_interrupt_is_one_line(said: bool, line: str, capsys: pytest.CaptureFixture, monkeypatch) -> None:  # type: ignore[no-untyped-def,type-arg]
    app = typer.Typer()

    @app.command()
    def work() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            if said:
                raise SystemExit(INTERRUPTED) from None
            raise

    monkeypatch.setattr("sys.argv", ["work"])
    with pytest.raises(SystemExit) as left:
        run_cli(app)
    assert left.value.code == 130
    assert capsys.readouterr().err == line
