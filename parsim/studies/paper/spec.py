"""The paper's evaluation as sweeps: Poisson rates and a burst of 2,000, Llama-3.1-like and R1-like lengths.

Llama-like: the bundled trace (recorded Llama-3.1-8B-Instruct lengths; real scores where it carries them). R1-like:
lognormal lengths with the moments of DeepSeek-R1 on planning problems (161 responses with API usage, thinking
counted: mean 4,859, coefficient of variation 1.03, prompts 380 tokens; LLMs-Planning, MIT); DeepSeek-R1-0528 on
MisguidedAttention has mean 4,491 and 0.96 (132 responses). No corpus with prompts comes with it, so PARS is
emulated there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.sweep.results import Results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import ASSUMED_TAUS, parse_spec

if TYPE_CHECKING:
    from rich.console import Console

    from parsim.sweep.execute import ExecutorName

R1_LENGTHS = {
    "prompt_mean": 380,
    "prompt_cv": 0.5,
    "output_mean": 4859,
    "output_cv": 1.03,
    "max_tokens": 30000,
}
BURST = 2000
BACKLOG_REQUESTS = (1000, 2000, 4000, 8000)
OVERLOAD = 1.3
PAPER_TAU = 0.96
"""The best Kendall tau-b that the paper reports (Alpaca)."""
RANKED = ("pointwise", "listwise", "pars", "pars-cross")
POLICIES = ["fcfs", *RANKED, "oracle"]


def experiments(corpus: str) -> dict[str, dict[str, Any]]:
    """Name -> sweep file of every experiment but the backlog, which needs the capacity first.

    `corpus`: the file of the bundled trace, whose rows are joined to other arrivals.
    """
    r1 = {
        "emulate": {"pars": ASSUMED_TAUS["pars"]},
        "policies": ["fcfs", "pars", "oracle", f"emulated(tau={PAPER_TAU})"],
    }
    burst = f"burst(n={BURST})"
    return {
        "llama-poisson": {
            "trace": "bundled",
            "policies": [*POLICIES, f"emulated(tau={PAPER_TAU})"],
            "studies": ["map"],
        },
        "llama-burst": {
            "trace": {"join": {"corpus": corpus, "arrivals": burst, "n": BURST}},
            "policies": [*POLICIES, f"emulated(tau={PAPER_TAU})"],
            "loads": [1],
            "studies": [],
        },
        "r1-poisson": {
            "trace": {"synthesize": {"arrivals": "poisson(rate=0.5)", "lengths": R1_LENGTHS, "n": 1500}},
            "seeds": [0, 1, 2],
            "studies": [],
            **r1,
        },
        "r1-burst": {
            "trace": {"synthesize": {"arrivals": burst, "lengths": R1_LENGTHS, "n": BURST}},
            "loads": [1],
            "seeds": [0, 1, 2],
            "studies": [],
            **r1,
        },
    }


def backlog(corpus: str, capacity_rps: float) -> dict[str, dict[str, Any]]:
    """The same overload for longer and longer, without a starvation guard and with it: what makes large factors."""
    arrivals = f"poisson(rate={OVERLOAD * capacity_rps:.4g})"
    return {
        f"backlog-{count}": {
            "trace": {"join": {"corpus": corpus, "arrivals": arrivals, "n": count}},
            "policies": ["fcfs", "pars", "oracle"],
            "starvation_threshold_s": [None, DEFAULT_STARVATION_THRESHOLD_S],
            "loads": [1],
            "seeds": [0, 1, 2],
            "studies": [],
        }
        for count in BACKLOG_REQUESTS
    }


def run_paper(
    folder: Path,
    console: Console,
    executor: ExecutorName = "local",
    jobs: int | None = None,
    fresh: bool = False,
) -> dict[str, Results]:
    """Run every experiment under `folder`/NAME; finished points are kept, so that a second call resumes."""
    from parsim.traces.trace import BUNDLED

    done: dict[str, Results] = {}

    def run_all(specs: dict[str, dict[str, Any]], say: Callable[[str], None]) -> None:
        for name, fields in specs.items():
            say(name)
            spec = parse_spec({"name": name, **fields}, name)
            done[name] = run_sweep(spec, folder / name, console, executor, jobs, fresh)

    total = len(experiments("")) + len(BACKLOG_REQUESTS)

    def say(name: str) -> None:
        console.print(f"[{len(done) + 1}/{total}] {name}", highlight=False, markup=False)

    run_all(experiments(str(BUNDLED)), say)
    run_all(backlog(str(BUNDLED), done["llama-poisson"].facts["capacity_rps"]), say)
    return done
