"""Options declared once: what is printed as the command gives the same options again."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from parsim.options_model import command_line, command_of
from parsim.validate.tiers.options import EndToEnd, EngineRun, ServerRun


def parsed(kind: type, words: list[str]) -> object:
    """The options that these words of a command line give."""
    found: list[object] = []
    app = typer.Typer()
    app.command()(command_of(kind, found.append))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return found[0]


@pytest.mark.parametrize(
    "options",
    [
        EngineRun(),
        EngineRun(
            "t.csv", "org/model", True, ["fcfs", "pars"], 7, 2, "cpu", 1.5, ["block_size=16", "a=b c"], 3
        ),
        EngineRun(emulate=["pars=0.5"], seed=2**32 - 1),
        ServerRun(url="http://h:1/v1", policy=["oracle"], load=0.25, cancel_share=0.1, timeout_s=5.0),
        EndToEnd(Path("p.jsonl"), Path("l.jsonl"), requests=200, repeats=1, clock="wall"),
    ],
)
def test_the_printed_command_gives_the_same_options(options: object) -> None:
    words = shlex.split(command_line("validate x", options))
    assert words[:3] == ["parsim", "validate", "x"]
    assert parsed(type(options), words[3:]) == options


def test_the_folder_and_the_way_to_a_file_are_not_printed(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("x")
    line = command_line("validate engine", EngineRun(trace=str(trace), out=tmp_path))
    assert line == "parsim validate engine t.csv"


def test_what_is_no_option_is_kept_out() -> None:
    options = EngineRun(notes=("a note",))
    assert parsed(EngineRun, []) == replace(options, notes=())


def test_settings_and_taus_are_read_from_their_text() -> None:
    options = EngineRun(policy=["fcfs", "pars"], set_=["block_size=16"], emulate=["pars=0.5"])
    assert options.settings == {"block_size": "16"} and options.taus == {"pars": 0.5}
    assert ServerRun(url="http://h:1/v1/").address == "http://h:1"
