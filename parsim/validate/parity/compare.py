"""Two step logs side by side: equal, or where they part."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rich.console import Console
from rich.table import Table

from parsim.validate.parity.case import Case
from parsim.validate.parity.steps import Step, StepLog


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the model parts from vLLM.

    Attributes:
        what: in words.
        step: index of the first step that differs, from 0; None where only the requests' times differ.
        vllm, model: the two steps (None past the end of a log).
        before: the step before, on which both agree (None at the start).
    """

    what: str
    step: int | None = None
    vllm: Step | None = None
    model: Step | None = None
    before: Step | None = None


def first_difference(vllm: StepLog, model: StepLog) -> Difference | None:
    """The first step that differs in anything, else the first request whose times differ, else None."""
    for place in range(max(len(vllm.steps), len(model.steps))):
        real = vllm.steps[place] if place < len(vllm.steps) else None
        own = model.steps[place] if place < len(model.steps) else None
        if real != own:
            before = vllm.steps[place - 1] if place else None
            if real is None or own is None:
                what = f"{'vLLM' if real is None else 'the model'} has no step {place}"
            else:
                names = [f.name for f in fields(Step) if getattr(real, f.name) != getattr(own, f.name)]
                what = f"step {place} differs in {', '.join(names)}"
            return Difference(what, place, real, own, before)
    return None if vllm.endless else time_difference(vllm, model)


def time_difference(vllm: StepLog, model: StepLog) -> Difference | None:
    """The first request whose first or last token comes at another time, else None."""
    for name, real, own in (
        ("first", vllm.first_token_s, model.first_token_s),
        ("last", vllm.last_token_s, model.last_token_s),
    ):
        for request_id in sorted({*real, *own}):
            if real.get(request_id) != own.get(request_id):
                return Difference(
                    f"{name} token of {request_id}: vLLM {real.get(request_id)} s, "
                    f"model {own.get(request_id)} s"
                )
    return None


def show_difference(console: Console, case: Case, difference: Difference) -> None:
    """Print the difference with both states, and the case's settings and the requests involved."""
    console.print(f"[bold red]{difference.what}[/]")
    if difference.step is not None:
        table = Table("", "before (both)", "vLLM", "model", show_lines=True)
        for field in fields(Step):
            cells = [
                _cell(getattr(step, field.name)) if step is not None else "-"
                for step in (difference.before, difference.vllm, difference.model)
            ]
            same = cells[1] == cells[2]
            table.add_row(field.name, *cells, style=None if same else "bold yellow")
        console.print(table)
    engine = case.engine.model_dump(exclude={"name", "provenance", "step_time"})
    console.print(f"policy: {case.policy}\nengine: {engine}", highlight=False)
    for request in case.requests[:40]:
        console.print(f"  {request.model_dump(exclude_none=True)}", highlight=False)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(f"{v[0]}:{v[1]}" if isinstance(v, tuple) else str(v) for v in value) or "none"
    return str(value)
