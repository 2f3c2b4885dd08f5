"""The command line: what is wrong is one line and exit code 2."""

from __future__ import annotations

import pytest
import typer

from parsim.cli import app
from parsim.command import run_cli
from parsim.validate.cli import app as validate_app


def run(
    application: typer.Typer,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[object, str, str]:
    monkeypatch.setattr("sys.argv", ["parsim", *arguments])
    with pytest.raises(SystemExit) as left:
        run_cli(application)
    said = capsys.readouterr()
    return left.value.code, said.out, said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "x"], "No such option: --seed; see `parsim --help`"),
        (["simulate", "bundled", "--seed", "x"], "Invalid value for '--seed'"),
        (["simulate"], "see `parsim simulate --help`"),
        (["sweeep"], "Did you mean 'sweep'"),
        (["sweep", "--executor", "spark"], "see `parsim sweep --help`"),
        (["traces", "inf"], "see `parsim traces --help`"),
        (["validate", "--seed"], "requires an argument"),
        (["validate", "--seed", "x"], "Invalid value for '--seed'"),
        (["validate", "engine", "--requests", "1"], "Invalid value for '--requests'"),
        (["simulate", "bundled", "--policy", "parz"], "did you mean 'pars'"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(app, arguments, monkeypatch, capsys)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and said in err and err.count("\n") == 1


def test_a_file_in_place_of_a_command_goes_to_the_strongest_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("parsim.validate.tiers.auto.run_auto", lambda choice, **rest: asked.append(choice))
    for arguments in ([], ["reports/x/choice.json"]):
        assert run(validate_app, arguments, monkeypatch, capsys)[0] == 0
        assert run(app, ["validate", *arguments], monkeypatch, capsys)[0] == 0
    assert list(map(str, asked)) == ["None", "None", "reports/x/choice.json", "reports/x/choice.json"]


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_code_that_a_command_ends_with_is_kept(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = typer.Typer()

    @own.command()
    def leave() -> None:
        raise typer.Exit(code)

    assert run(own, [], monkeypatch, capsys) == (code, "", "")


def test_an_interrupt_is_130_and_says_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = typer.Typer()

    @own.command()
    def wait() -> None:
        raise KeyboardInterrupt

    code, _, err = run(own, [], monkeypatch, capsys)
    assert code == 130 and err.strip() == "interrupted: what was finished is kept"
