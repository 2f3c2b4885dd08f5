"""The house: arrows point down, and a command that simulates loads nothing heavy."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "vllm", "sklearn", "peft", "datasets"}


@cache
def imported(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere, with `parsim.scheduler.vllm` style names kept whole."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def below(name: str, roots: tuple[str, ...]) -> bool:
    """Whether a dotted name is one of `roots` or lies in it."""
    return any(name == root or name.startswith(f"{root}.") for root in roots)


GROUND_NAMES = "command defaults errors files interrupt json_lines pool progress seeds settings_file stats"
GROUND = tuple(f"parsim.{name}" for name in GROUND_NAMES.split())
"""What every floor stands on; it imports nothing of the house but itself."""


@pytest.mark.parametrize(
    ("floor", "allowed"), [("parsim/traces", ("parsim.traces", *GROUND)), ("parsim/validate", ("parsim",))]
)
def test_a_floor_imports_only_what_is_below_it(floor: str, allowed: tuple[str, ...]) -> None:
    for path in files(floor):
        for name in imported(path):
            if below(name, ("parsim",)):
                assert below(name, allowed), f"{path.relative_to(ROOT)} imports {name}"


def test_the_ground_imports_nothing_above_it() -> None:
    for name in GROUND:
        path = ROOT / (name.replace(".", "/") + ".py")
        assert all(below(n, GROUND) for n in imported(path) if below(n, ("parsim",))), path


@pytest.mark.parametrize(("above", "but"), [("parsim.validate", "parsim/validate"), ("parsim.cli", "none")])
def test_arrows_point_down(above: str, but: str) -> None:
    for path in files("parsim"):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(("parsim/cli/", but)) or place == "parsim/__main__.py":
            continue
        assert not any(below(name, (above,)) for name in imported(path)), f"{place} imports {above}"


def test_only_the_adapter_imports_vllm() -> None:
    for path in files("parsim"):
        if not path.name.startswith("vllm") and "validate" not in path.parts:
            assert "vllm" not in {name.split(".")[0] for name in imported(path)}, path


def test_the_scheduler_needs_only_the_standard_library() -> None:
    allowed = set(sys.stdlib_module_names) | {"parsim"}
    for path in files("parsim/scheduler"):
        if path.name.startswith("vllm"):
            continue
        for name in imported(path):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
            if name.startswith("parsim"):
                assert below(name, ("parsim.scheduler", "parsim.defaults", "parsim.errors")), (
                    f"{path.name} imports {name}"
                )


def test_the_learner_needs_only_numpy() -> None:
    allowed = set(sys.stdlib_module_names) | {"numpy"}
    own = ("parsim.learner", "parsim.scheduler", "parsim.errors", "parsim.files")
    for path in files("parsim/learner"):
        for name in imported(path):
            assert below(name, own) or name.split(".")[0] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("command", [["parsim", "--help"], ["traces", "--help"], ["validate", "--help"]])
def test_help_loads_nothing_heavy(command: list[str]) -> None:
    code = (
        "import runpy, sys; sys.argv = sys.argv[1:];\n"
        "try: runpy.run_module(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"heavy = {HEAVY!r} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Line and words of every error that a file raises; a command in backquotes is no part of them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise):
            words = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield node.lineno, re.sub(r"`[^`]*`", "", "".join(map(str, words)))


def test_errors_of_the_library_name_no_options_of_the_command_line() -> None:
    commands = ("parsim/cli/", "parsim/validate/commands/", "parsim/options.py")
    for path in files("parsim"):
        place = path.relative_to(ROOT).as_posix()
        for line, words in messages(path) if not place.startswith(commands) else ():
            assert not re.search(r"(?<![\w-])--[a-z]", words.replace("ray start --head", "")), (
                f"{place}:{line}"
            )


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of the whole package."""
    named = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files("parsim")}
    return {name.removesuffix(".__init__"): path for path, name in named.items()}


def needs(path: Path, known: Collection[str]) -> set[str]:
    """Modules of the package that a file imports as it is imported itself: outside functions and TYPE_CHECKING."""
    found: set[str] = set()

    def walk(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found.add(whole if whole in known else node.module)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                continue
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for part in ("body", "orelse", "finalbody"):
                    walk(getattr(node, part, []))

    walk(ast.parse(path.read_text(encoding="utf-8")).body)
    return {name for name in found if name in known}


def room(name: str) -> str:
    """The folder that a module lies in; a module of the ground, and the adapter to vLLM, are rooms of their own."""
    if name.startswith("parsim.scheduler.vllm"):
        return "parsim.scheduler.vllm"
    folder = ".".join(modules()[name].parent.relative_to(ROOT).parts)
    whole = ("parsim.engine", "parsim.report", "parsim.traces")
    return name if folder == "parsim" else next((w for w in whole if below(folder, (w,))), folder)


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """One circle of arrows, or nothing."""
    try:
        list(graphlib.TopologicalSorter(arrows).static_order())
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_there_is_no_circle_of_modules_nor_of_rooms() -> None:
    known = modules()
    arrows = {name: needs(path, known) - {name} for name, path in known.items()}
    assert not circle(arrows)
    rooms: dict[str, set[str]] = {}
    for name, several in arrows.items():
        for other in several - {"parsim"}:
            if room(name) != room(other):
                rooms.setdefault(room(name), set()).add(room(other))
    assert not circle(rooms)


LONGEST = 300
GROWING = {
    "batch",
    "engine",
}
"""Names of files that may be longer until they are parted."""


def test_no_file_is_longer_than_three_hundred_lines() -> None:
    for path in files("parsim"):
        most = LONGEST * (1.4 if path.stem in GROWING else 1)
        assert len(path.read_text(encoding="utf-8").splitlines()) <= most, path


def test_no_module_is_imported_under_two_names() -> None:
    code = (
        "import runpy, sys, parsim.cli\n"
        "sys.argv = ['validate', '--help']\n"
        "try: runpy.run_module('validate', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "known = {}\n"
        "for name, module in list(sys.modules.items()):\n"
        "    file = getattr(module, '__file__', None)\n"
        "    if file and '/parsim/' in file and name != '__main__': known.setdefault(file, []).append(name)\n"
        "assert len(known) > 20 and all(len(names) == 1 for names in known.values()), known"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_documents_name_files_that_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(((?!https?:)[^)#]+)", text):
        assert ((ROOT / page).parent / link).exists(), f"{page} links to {link}"
    for place in re.findall(r"`((?:parsim|tests|docs)/[\w/.-]+\.\w+)`", text):
        assert (ROOT / place).exists(), f"{page} names {place}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
