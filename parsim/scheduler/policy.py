"""A scheduling policy: order, score, guard and victim, four independent choices."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from parsim.defaults import DEFAULT_STARVATION_THRESHOLD_S
from parsim.errors import UserError, nearest
from parsim.scheduler import own_order
from parsim.scheduler.order import ORDERS, Order, aged, order_of
from parsim.scheduler.own_order import KeyFunction
from parsim.scheduler.victim import VictimRule

SCORE_PREFIX = "score."
"""A trace's column `score.NAME` holds the scores of the predictor NAME."""
CLAIRVOYANT_COLUMNS = frozenset({"output_tokens", "work_s", "weighted_work_s"})
"""What is known only once a request has been served; the works follow from its lengths (`parsim.engine.work`)."""


@dataclass(frozen=True)
class Policy:
    """How waiting requests are ordered, who is promoted and who is preempted.

    Attributes:
        name: as given on the command line.
        order: `fcfs`, `score` (ascending), `hrrn`, or a function of one's own: itself, or its place as text
            (`parsim.scheduler.own_order`).
        score: the trace column that ranks requests; None where the order needs none. With `emulated_tau` it is the
            column that is stood in for, None for a predictor that does not exist.
        starvation_threshold_s: seconds of waiting after which a request is promoted; None for no such guard.
        starvation_s_per_token: seconds of waiting for each expected response token after which a request is promoted:
            short ones are let through sooner than long ones; None for no such guard. With both, the sooner counts.
        ageing_tokens_per_s: expected response tokens by which a second of waiting shortens a request (order `score`).
        victim: `last` admitted (vLLM's fcfs) or `worst` in the order (vLLM's priority).
        learns: a learner gives the scores, from the requests that have finished (`parsim.learner`).
        do_no_harm: scores order requests only while they rank what finishes (`parsim.learner.judge`).
        emulated_tau: Kendall tau-b of a degraded oracle that stands in for a predictor; None for real scores.
        summary: one line for a list of policies.
    """

    name: str
    order: str | KeyFunction
    score: str | None = None
    starvation_threshold_s: float | None = None
    victim: VictimRule = "last"
    emulated_tau: float | None = None
    learns: bool = False
    do_no_harm: bool = False
    summary: str = ""
    starvation_s_per_token: float | None = None
    ageing_tokens_per_s: float | None = None

    @property
    def label(self) -> str:
        """The name for tables and charts; says so where the scores are emulated."""
        if self.emulated_tau is None or self.score is None:
            return self.name
        return f"{self.name} (emulated, tau {self.emulated_tau:.2f})"

    @property
    def predictor(self) -> str | None:
        """The NAME of the predictor whose scores it ranks by; None where it ranks by no predictor's, or by none's."""
        return (
            self.score.removeprefix(SCORE_PREFIX)
            if self.score and self.score.startswith(SCORE_PREFIX)
            else None
        )

    @property
    def ranks_by_prompt(self) -> bool:
        """Whether its score is the length of the prompt, which every engine knows by itself."""
        return self.score == "prompt_tokens"

    @property
    def needs_scores(self) -> bool:
        """Whether requests must be scored for it: not where it goes by their turn, their prompts, or one's own function
        that was given none."""
        scored = self.score is not None or self.emulated_tau is not None or self.order in ORDERS
        return self.ranked and not self.ranks_by_prompt and scored

    @property
    def reference(self) -> str:
        """The name by which `parse_policy` finds it where no trace is at hand, as in a serving engine."""
        if self.predictor is None or self.name in POLICIES:
            return self.name
        order = own_order.reference(self.order)
        return str(self.score) if order == "score" else f"{order}({self.score})"

    @property
    def ranked(self) -> bool:
        """Whether it orders requests by anything but their arrival: then it has a guard, and may need scores."""
        return not order_of(self.order).in_turn

    @property
    def clairvoyant(self) -> bool:
        """Whether it needs the true response length: a bound to compare with, which no engine can run."""
        return self.score in CLAIRVOYANT_COLUMNS or order_of(self.order).clairvoyant

    @property
    def runs_in_vllm(self) -> bool:
        """Whether a real engine can serve by it: not by the true length, nor by a predictor that does not exist.

        A policy with a predictor stays one that can be run where its scores are emulated.
        """
        return not self.clairvoyant and not (self.emulated_tau is not None and self.score is None)

    @property
    def has_predictor(self) -> bool:
        """Whether its scores are a predictor's, real or emulated: those cost time to make."""
        return self.emulated_tau is not None or self.predictor is not None

    @property
    def scores_are_tokens(self) -> bool:
        """Whether its scores are response lengths already; else what they stand for is learned as requests finish."""
        return self.score == "output_tokens" and self.emulated_tau is None

    @property
    def aged_order(self) -> Order:
        """The order, with ageing where that is asked for."""
        order = order_of(self.order)
        if not self.ageing_tokens_per_s or order.in_turn:
            return order
        if order is not ORDERS["score"]:
            raise UserError(f"policy {self.name}: ageing goes with the order score, not with {order.name}")
        return aged(self.ageing_tokens_per_s)

    @property
    def reorders_with_time(self) -> bool:
        """Whether the order of waiting requests can change without an arrival or a promotion."""
        return order_of(self.order).varies

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


def _ranked(name: str, score: str, summary: str, order: str = "score") -> Policy:
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
        _ranked("oracle", "output_tokens", "shortest true response first; its prompt is neglected"),
        _ranked(
            "oracle-work", "work_s", "least true work first, prompt and response at the engine's own rates"
        ),
        _ranked(
            "oracle-weighted",
            "weighted_work_s",
            "least true work x response length first: for latency per token",
        ),
        Policy(
            "online",
            "score",
            None,
            DEFAULT_STARVATION_THRESHOLD_S,
            learns=True,
            do_no_harm=True,
            summary="shortest predicted first; predictor: learned from the requests that have finished",
        ),
        _ranked("prompt-sjf", "prompt_tokens", "shortest prompt first"),
        _ranked("hrrn", "output_tokens", "highest response ratio next, on the true response length", "hrrn"),
    )
}
"""The named policies."""

_EMULATED = re.compile(r"emulated\(\s*(?:tau\s*=\s*)?([^()]*)\)")
_ORDERED = re.compile(r"([^()]+)\(([^()=]+)\)")


def parse_policy(text: str, predictors: Collection[str] = ()) -> Policy:
    """The policy that a text names.

    A name of `POLICIES`; the NAME of a predictor, or `score.NAME`: shortest predicted first; `emulated(tau=T)` with T
    in [-1, 1]; `module:function` or `file.py:function`: an order of one's own; `hrrn(NAME)` or `module:function(NAME)`:
    such an order on the scores of the policy or predictor NAME.

    Args:
        text: see above.
        predictors: NAMEs that are known besides: those of a trace's columns `score.NAME`.

    Raises:
        UserError: no such policy (the nearest name is given), order or function, or a tau out of range.
    """
    name = text.strip()
    if name in POLICIES:
        return POLICIES[name]
    if _EMULATED.fullmatch(name):
        return _emulated(name)
    ordered = _ORDERED.fullmatch(name)
    if ordered:
        order, of = ordered[1].strip(), parse_policy(ordered[2], predictors)
        if of.score is None or order_of(order).in_turn:
            raise UserError(f"policy {text!r}: {of.name if of.score is None else order} ranks by no score")
        return replace(
            of, name=f"{order}({of.name})", order=order, summary=f"{order} on the scores of {of.name}"
        )
    if name.removeprefix(SCORE_PREFIX) in POLICIES:
        return POLICIES[name.removeprefix(SCORE_PREFIX)]
    if (name.startswith(SCORE_PREFIX) and name != SCORE_PREFIX) or name in predictors:
        short = name.removeprefix(SCORE_PREFIX)
        return _ranked(short, SCORE_PREFIX + short, "shortest predicted first")
    if ":" in name:
        own = order_of(name)
        return Policy(name, own.name, None, DEFAULT_STARVATION_THRESHOLD_S, summary="an order of one's own")
    known = list(dict.fromkeys([*POLICIES, *predictors]))
    raise UserError(
        f"policy {text!r}: no such policy{nearest(name, known)} (choose from {', '.join(known)}, emulated(tau=T), "
        "score.NAME for the scores of a predictor NAME, or module:function for an order of your own)"
    )


def as_policy(policy: str | Policy | KeyFunction, predictors: Collection[str] = ()) -> Policy:
    """A policy as it is, from a text (see `parse_policy`), or from a function that orders requests.

    Raises:
        UserError: as of `parse_policy`; or the function does not take what an order is given.
    """
    if isinstance(policy, str):
        return parse_policy(policy, predictors)
    if isinstance(policy, Policy):
        return policy
    if not callable(policy) or getattr(policy, "__hash__", None) is None:
        raise UserError(
            f"policy {str(policy)[:80]!r}: is neither a name nor a function that can be told from others (hashable)"
        )
    name = order_of(policy).name
    return Policy(name, policy, None, DEFAULT_STARVATION_THRESHOLD_S, summary="an order of one's own")


def _emulated(name: str) -> Policy:
    match = _EMULATED.fullmatch(name)
    try:
        tau = float(match[1]) if match else float("nan")
    except ValueError:
        tau = float("nan")
    if not -1.0 <= tau <= 1.0:
        raise UserError(f"policy {name!r}: tau must lie between -1 and 1")
    return Policy(f"emulated(tau={tau:g})", "score", None, DEFAULT_STARVATION_THRESHOLD_S, emulated_tau=tau)
