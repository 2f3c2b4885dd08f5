"""What `pip install .` brings: one importable name, which lives beside packages called `traces` and `validate`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging
ROOT = Path(__file__).parents[1]
STRANGERS = ("traces", "configobj")
"""Of PyPI; the second installs a top-level `validate`."""
CHECK = """
import configobj, sys, traces, validate
import parsim, parsim.traces, parsim.validate
series = traces.TimeSeries(); series[0] = 1; assert series[5] == 1
assert validate.Validator().check("integer", "3") == 3
assert parsim.traces is not traces and hasattr(parsim.traces, "read_trace")
print(parsim.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy, so that the checkout stays as it is."""
    pytest.importorskip("setuptools")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "parsim", source / "parsim", ignore=ignored)
    for folder in ("traces", "validate"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run([sys.executable, "-c", code, str(out)], source)
    return next(out.glob("parsim-*.whl"))


def run(words: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def environment(folder: Path) -> tuple[Path, Path]:
    """A fresh environment's interpreter and site-packages; what the project needs is taken from the one at hand."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(
        run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    )
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python, site


def install(python: Path, *what: str) -> None:
    words = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *what]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode and what[0] in STRANGERS:
        pytest.skip(f"{', '.join(what)} cannot be fetched from PyPI here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr


def importable(site: Path) -> set[str]:
    found = {path.stem for path in site.glob("*.py")} | {p.name for p in site.iterdir() if p.is_dir()}
    return {name for name in found if name.isidentifier() and name != "__pycache__"}


def test_the_wheel_holds_one_package_and_all_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"parsim"}
    held = {Path(name) for name in names}
    for path in (ROOT / "parsim").rglob("*"):
        if path.is_file() and path.suffix not in (".pyc",):
            assert path.relative_to(ROOT) in held, f"{path.relative_to(ROOT)} is not in the wheel"


def test_a_fresh_environment_gains_one_name_and_commands_that_run(wheel: Path, tmp_path: Path) -> None:
    python, site = environment(tmp_path / "env")
    before = importable(site)
    install(python, str(wheel))
    assert importable(site) - before == {"parsim"}
    command = str(python.with_name("parsim"))
    assert run([command, "--version"], tmp_path).startswith("parsim ")
    for words, said in (
        ("sweep --help", "Usage: parsim sweep"),
        ("validate --help", "Usage: parsim validate"),
        ("traces info --json", '"requests"'),
        ("policies", "pars"),
        ("engines", "llama-3.1-8b"),
        ("metrics", "ttft"),
        ("simulate bundled --json", '"completed"'),
    ):
        assert said in run([command, *words.split()], tmp_path), words
    assert "_parsim_completion" in run(["env", "_PARSIM_COMPLETE=source_bash", command], tmp_path)


@pytest.mark.parametrize("first", [True, False])
def test_packages_of_the_same_names_work_beside_it(wheel: Path, tmp_path: Path, first: bool) -> None:
    python, site = environment(tmp_path / "env")
    needs = ("sortedcontainers", "infinity", "six")
    install(python, *STRANGERS, *needs) if first else install(python, str(wheel))
    install(python, str(wheel)) if first else install(python, *STRANGERS, *needs)
    assert str(site) in run([str(python), "-c", CHECK], tmp_path)
    assert run([str(python.with_name("parsim")), "traces", "info", "--json"], tmp_path).startswith("{")
