"""What would happen: scheduler, engine model, predictor, sweep and report.

Simulate one run of the trace that comes with the package, under a policy by name:

>>> import parsim
>>> trace, engine = parsim.bundled_trace().head(200), parsim.load_engine("llama-3.1-8b-a100-80g", {"max_num_seqs": 8})
>>> run = parsim.simulate(trace, engine, "pars", load=4)
>>> figures = parsim.metrics.summarize(run.requests)
>>> int(figures["completed"])
200

A policy of one's own is a function: the smallest value is served first. The same function runs inside vLLM.

>>> def shortest_prompt(request):
...     return request.prompt_tokens
>>> mine = parsim.metrics.summarize(parsim.simulate(trace, engine, shortest_prompt, load=4).requests)
>>> named = parsim.metrics.summarize(parsim.simulate(trace, engine, "prompt-sjf", load=4).requests)
>>> mine["mean_e2el_ms"] == named["mean_e2el_ms"]
True

Many runs, their tables and a report (`parsim.sweep` says what may be given):

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     results = parsim.sweep(
...         trace, engine="llama-3.1-8b-a100-80g", policies=["fcfs", "oracle", shortest_prompt],
...         loads=[4], seeds=[0], studies=[], out=folder, jobs=1)
...     sorted(path.name for path in Path(folder).glob("report.html"))
['report.html']
>>> [policy.rpartition(":")[2] for policy in results.facts["policies"]]
['fcfs', 'oracle', 'shortest_prompt']

Names are imported when they are first used: `import parsim` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsim import metrics, sweep
    from parsim.engine.presets.load import load_engine
    from parsim.scheduler.policy import Policy
    from parsim.simulation import simulate
    from parsim.traces import Trace, bundled_trace, read_trace

_HOME = {
    "Policy": "parsim.scheduler.policy",
    "Trace": "parsim.traces",
    "bundled_trace": "parsim.traces",
    "load_engine": "parsim.engine.presets.load",
    "read_trace": "parsim.traces",
    "simulate": "parsim.simulation",
}
_MODULES = ("metrics", "sweep")

__all__ = ["Policy", "Trace", "bundled_trace", "load_engine", "metrics", "read_trace", "simulate", "sweep"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"parsim.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'parsim' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
