"""Random cases until the model parts from vLLM; a failing case is shrunk to a small one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from parsim.errors import UserError
from parsim.validate.parity.case import Case
from parsim.validate.parity.check import Checked, check

LEAST_SHARE = 6
"""Cases a corner gets at least: Hypothesis begins with the simplest. With fewer cases, fewer corners are drawn."""

POLICY_NAMES = ("fcfs", "pars", "pointwise", "listwise", "oracle", "prompt-sjf", "hrrn", "emulated(tau=0.5)")
"""Those that random cases are drawn from."""


@dataclass(slots=True)
class Tally:
    """What was compared: cases, steps, preemptions, and cases that preempt at all."""

    cases: int = 0
    steps: int = 0
    preemptions: int = 0
    preempting_cases: int = 0

    def add(self, checked: Checked) -> None:
        self.cases += 1
        self.steps += len(checked.vllm.steps)
        self.preemptions += checked.vllm.preemptions
        self.preempting_cases += checked.vllm.preemptions > 0


def search(
    cases: int, seed: int, policies: tuple[str, ...], passed: Callable[[Checked], None]
) -> Checked | None:
    """Check this many random cases, spread over all corners; returns the first failure, shrunk, or None.

    Args:
        cases: how many.
        seed: the same seed draws the same cases.
        policies: names of the policies to draw from.
        passed: called with each case that is equal, until one is not.

    Raises:
        UserError: Hypothesis is not installed.
    """
    try:
        import hypothesis
        from hypothesis import HealthCheck, Phase
    except ImportError:
        raise UserError(
            "Hypothesis is not installed; random cases are drawn with it: pip install 'parsim[vllm]' or hypothesis"
        ) from None
    from parsim.validate.parity import strategies

    failed: list[Checked] = []

    class Unequal(AssertionError):
        pass

    def compare(case: Case) -> None:
        checked = check(case)
        if checked.difference is not None:
            failed.append(checked)
            raise Unequal(checked.difference.what)
        if not failed:
            passed(checked)

    settings = hypothesis.settings(
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    every = strategies.corners(policies)
    corners = random.Random(seed).sample(every, max(1, min(len(every), cases // LEAST_SHARE)))
    for place, corner in enumerate(corners):
        share = (cases + place) // len(corners)
        drawn = hypothesis.given(strategies.cases(corner))(compare)
        drawn = hypothesis.settings(settings, max_examples=share)(hypothesis.seed(f"{seed} {corner}")(drawn))
        try:
            drawn()
        except Unequal:
            return failed[-1]  # Hypothesis ends with the smallest
    return None
