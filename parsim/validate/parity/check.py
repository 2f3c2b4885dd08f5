"""One parity check: both sides run a case, and every step must be equal."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.validate.parity.case import Case
from parsim.validate.parity.compare import Difference, first_difference, time_difference
from parsim.validate.parity.drive import drive
from parsim.validate.parity.model import simulate_case
from parsim.validate.parity.steps import StepLog


@dataclass(frozen=True, slots=True)
class Checked:
    """Both logs of a case, and the first difference (None: all equal).

    `fast` is the simulator as users run it, without a step log.
    """

    case: Case
    vllm: StepLog
    model: StepLog
    fast: StepLog
    difference: Difference | None


def check(case: Case) -> Checked:
    """Run the case on vLLM's scheduler and on the simulated engine, with and without its step log."""
    vllm = drive(case)
    model = simulate_case(case)
    fast = model if vllm.endless else simulate_case(case, steps=False)
    difference = first_difference(vllm, model)
    if difference is None and not vllm.endless:
        difference = time_difference(vllm, fast)
        if difference is not None:
            difference = Difference(f"without a step log: {difference.what}")
    return Checked(case, vllm, model, fast, difference)
