"""A scheduling policy: order, score, guard and victim, four independent choices."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from parsim.errors import nearest
from parsim.scheduler.order import TIME_VARYING, OrderName
from parsim.scheduler.victim import VictimRule

DEFAULT_STARVATION_THRESHOLD_S = 120.0
"""PARS promotes a request that has waited more than two minutes (arXiv 2510.03243)."""
SCORE_PREFIX = "score."
"""A trace's column `score.NAME` holds the scores of the predictor NAME."""
CLAIRVOYANT_COLUMNS = frozenset({"output_tokens"})
"""Columns that are known only once a request has been served."""


@dataclass(frozen=True)
class Policy:
    """How waiting requests are ordered, who is promoted and who is preempted.

    Attributes:
        name: as given on the command line.
        order: `fcfs`, `score` (ascending) or `hrrn`.
        score: the trace column that ranks requests; None where the order needs none. With `emulated_tau` it is the
            column that is stood in for, None for a predictor that does not exist.
        starvation_threshold_s: seconds of waiting after which a request is promoted; None for no guard.
        victim: `last` admitted (vLLM's fcfs) or `worst` in the order (vLLM's priority).
        emulated_tau: Kendall tau-b of a degraded oracle that stands in for a predictor; None for real scores.
        summary: one line for a list of policies.
    """

    name: str
    order: OrderName
    score: str | None = None
    starvation_threshold_s: float | None = None
    victim: VictimRule = "last"
    emulated_tau: float | None = None
    summary: str = ""

    @property
    def label(self) -> str:
        """The name for tables and charts; says so where the scores are emulated."""
        if self.emulated_tau is None or self.score is None:
            return self.name
        return f"{self.name} (emulated, tau {self.emulated_tau:.2f})"

    @property
    def ranked(self) -> bool:
        """Whether it orders requests by anything but their arrival: then it has a guard, and may need scores."""
        return self.order != "fcfs"

    @property
    def clairvoyant(self) -> bool:
        """Whether it needs the true response length: a bound to compare with, which no engine can run."""
        return self.score in CLAIRVOYANT_COLUMNS

    @property
    def runs_in_vllm(self) -> bool:
        """Whether a real engine can serve by it: not by the true length, nor by a predictor that does not exist.

        A policy with a predictor stays one that can be run where its scores are emulated.
        """
        return not self.clairvoyant and not (self.emulated_tau is not None and self.score is None)

    @property
    def has_predictor(self) -> bool:
        """Whether its scores are a predictor's, real or emulated: those cost time to make."""
        return self.emulated_tau is not None or (self.score or "").startswith(SCORE_PREFIX)

    @property
    def reorders_with_time(self) -> bool:
        """Whether the order of waiting requests can change without an arrival or a promotion."""
        return self.order in TIME_VARYING

    def emulated(self, tau: float) -> Policy:
        """This policy with scores of a degraded oracle in place of its predictor's.

        Raises:
            ValueError: it has no predictor.
        """
        if not self.has_predictor:
            raise ValueError(
                f"policy {self.name}: has no predictor to emulate; take emulated(tau={tau:g}) in its place"
            )
        return replace(self, emulated_tau=tau)


def _ranked(name: str, score: str, summary: str, order: OrderName = "score") -> Policy:
    return Policy(name, order, score, DEFAULT_STARVATION_THRESHOLD_S, summary=summary)


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("fcfs", "fcfs", summary="first come, first served: vLLM's default"),
        _ranked(
            "pointwise", "score.pointwise", "shortest predicted first; predictor: regression of the length"
        ),
        _ranked("listwise", "score.listwise", "shortest predicted first; predictor: ListMLE ranking"),
        _ranked("pars", "score.pars", "shortest predicted first; predictor: pairwise ranking (PARS)"),
        _ranked(
            "pars-plus", "score.pars-plus", "shortest predicted first; predictor: the project's best ranker"
        ),
        _ranked("pars-cross", "score.pars-cross", "PARS with a predictor trained on another model's lengths"),
        _ranked("oracle", "output_tokens", "shortest true response first: no predictor can order better"),
        _ranked("prompt-sjf", "prompt_tokens", "shortest prompt first"),
        _ranked("hrrn", "output_tokens", "highest response ratio next, on the true response length", "hrrn"),
    )
}
"""The named policies."""

_EMULATED = re.compile(r"emulated\(\s*(?:tau\s*=\s*)?(-?[0-9.]+)\s*\)")


def parse_policy(text: str) -> Policy:
    """The policy of a name, or `emulated(tau=T)` with T in [-1, 1].

    Raises:
        ValueError: no such policy (the nearest name is given), or a tau out of range.
    """
    name = text.strip()
    if name in POLICIES:
        return POLICIES[name]
    match = _EMULATED.fullmatch(name)
    if match:
        try:
            tau = float(match[1])
        except ValueError:
            tau = float("nan")
        if not -1.0 <= tau <= 1.0:
            raise ValueError(f"policy {text!r}: tau must lie between -1 and 1")
        return Policy(
            f"emulated(tau={tau:g})", "score", None, DEFAULT_STARVATION_THRESHOLD_S, emulated_tau=tau
        )
    hint = nearest(name, [*POLICIES, "emulated(tau=0.8)"])
    raise ValueError(
        f"policy {text!r}: no such policy{hint} (choose from {', '.join(POLICIES)} or emulated(tau=T))"
    )
