"""A sweep from Python: what `parsim.sweep(...)` calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsim.scheduler import own_order
from parsim.scheduler.own_order import KeyFunction
from parsim.sweep.results import Results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import DEFAULT_POLICIES, parse_spec
from parsim.traces import Trace, write_trace

if TYPE_CHECKING:
    from rich.console import Console


def sweep(
    trace: Trace | str | Path | dict[str, Any] = "bundled",
    *,
    policies: Sequence[str | KeyFunction] = DEFAULT_POLICIES,
    out: str | Path = "reports/sweep",
    jobs: int | None = None,
    console: Console | None = None,
    **fields: Any,
) -> Results:
    """Run a sweep, write its tables and `report.html`, and return the tables; points in `out` are not run again.

    Args:
        trace: requests, a file of them, `bundled`, or the `trace` of a sweep file.
        policies: names (`parsim.scheduler.policy.parse_policy`), or functions that order requests. A function must be
            found by its module and name, as workers and vLLM find it; with `jobs=1` any will do.
        out: folder for the tables and the report.
        jobs: processes; all cores if None.
        console: where progress is shown; nowhere if None.
        **fields: any other field of a sweep file: engine, set, loads, seeds, studies, objective, ...

    Raises:
        UserError: a field or policy does not exist, or has a value that it may not have.
    """
    from rich.console import Console

    from parsim.report.build import write_report

    folder = Path(out)
    source: Any = trace
    if isinstance(trace, Trace):
        path = folder / "given.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        write_trace(trace, path)
        source = {"path": str(path)}
    elif isinstance(trace, Path):
        source = str(trace)
    names = [own_order.reference(policy) for policy in policies]
    for name, policy in zip(names, policies, strict=True):
        if not isinstance(policy, str):
            own_order.remember(name, policy)
    plain = {
        name: list(value) if isinstance(value, tuple | range) else value for name, value in fields.items()
    }
    spec = parse_spec({"trace": source, "policies": names, **plain}, "sweep")
    results = run_sweep(spec, folder, console or Console(quiet=True), jobs=jobs)
    write_report(folder, results)
    return results
