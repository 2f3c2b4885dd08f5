"""The PARS scheduler for vLLM V1: `vllm serve MODEL --scheduler-cls parsim.scheduler.vllm.ParsScheduler`.

An adapter and nothing more: order, guard and victim are decided by the same `RankedQueue` that the simulated
engine runs. Configured by `--additional-config '{"parsim": {"policy": "pars", ...}}'` or PARSIM_POLICY and
the like (`parsim.scheduler.settings`).

A request's score comes from itself (`vllm_xargs: {"pars_score": 123.4}` over HTTP,
`SamplingParams.extra_args` in process, or its `priority`), else from the scorer: for up to `SCORE_WAIT_S` a
request that awaits its score stands behind the others. One without a score, or with one that is no finite
number, ranks at the median of the last scores.
`prompt-sjf` needs none: it reads the prompt's length.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from parsim.learner.judge import ScoreJudge
from parsim.learner.shadow import Panel, Shadow
from parsim.scheduler.features import Features
from parsim.scheduler.recorder import TraceRecorder
from parsim.scheduler.scoring import ScoreFeed, Scorer, load_scorer
from parsim.scheduler.settings import SchedulerSettings, read_settings
from parsim.scheduler.vllm_metrics import SharedGauges, serve_metrics
from parsim.scheduler.vllm_queue import Entry, ParsQueue
from parsim.scheduler.vllm_recorder import RequestLog
from parsim.scheduler.vllm_request import app_of, ending_of, features_of, score_of
from parsim.scheduler.vllm_version import check_interface, check_version

log = logging.getLogger("vllm.parsim")


class ParsScheduler(Scheduler):
    """vLLM's scheduler with the waiting queue and the victim rule of a parsim policy.

    Constructing it gives an `AsyncParsScheduler` where async scheduling is on, so that one name serves both.

    Attributes:
        clock: seconds on the clock of `Request.arrival_time`; replaced by a virtual one in parity checks.

    Raises:
        ValueError: a setting is unknown or not allowed, or the scorer cannot be loaded.
        RuntimeError: this vLLM lacks something that the adapter relies on.
    """

    def __new__(cls, vllm_config: Any, *args: Any, **options: Any) -> ParsScheduler:
        if cls is ParsScheduler and vllm_config.scheduler_config.async_scheduling:
            return super().__new__(AsyncParsScheduler)
        return super().__new__(cls)

    def __init__(self, vllm_config: Any, *args: Any, **options: Any) -> None:
        check_version(log)
        additional = vllm_config.additional_config
        settings = read_settings(
            additional.get("parsim", {}) if isinstance(additional, dict) else {}, os.environ
        )
        super().__init__(vllm_config, *args, **options)
        check_interface(self)
        self.clock: Callable[[], float] = time.time
        self._counts = dict.fromkeys(
            ("requests", "scored", "unscored", "scored_late", "order_failures", "promoted"), 0
        )
        self._model = vllm_config.model_config.model
        self._feed: ScoreFeed | None = None
        self.shadows: list[Shadow] = []
        self._log: RequestLog | None = None
        if settings.record is not None:
            block_size = vllm_config.cache_config.block_size
            self._log = RequestLog(
                TraceRecorder(settings.record, block_size),
                lambda: self.clock(),
                block_size,
                settings.record_text,
            )
        self.serve_by(settings)
        self._gauges = SharedGauges() if SharedGauges.wanted() else None
        if settings.metrics_port is not None:
            serve_metrics(self.stats, settings.metrics_port)
        log.info("parsim: %s, %s", type(self).__name__, settings)

    @property
    def settings(self) -> SchedulerSettings:
        """The settings in force."""
        return self._settings

    def serve_by(self, settings: SchedulerSettings, scorer: Scorer | None = None) -> None:
        """Serve by these settings from now on, as a comparison of policies on one engine does.

        Args:
            settings: policy, guard and the rest.
            scorer: takes the place of the one that `settings` name.

        Raises:
            RuntimeError: requests are waiting or running.
            ValueError: the scorer cannot be loaded.
        """
        if self.requests:
            raise RuntimeError(
                f"{len(self.requests)} requests are not finished: the policy cannot change now"
            )
        if self._feed is not None:
            self._feed.close()
        self._settings = settings
        policy = settings.resolved_policy()
        self._prompt_length_is_score = policy.ranks_by_prompt
        self._needs_score = policy.needs_scores
        self.judge = ScoreJudge() if settings.judged else None
        self._close_shadows()
        self.shadows = [Shadow(name, self._feed_of(name)) for name in settings.shadow]
        panel = Panel(self.judge, self.shadows) if self.shadows else self.judge
        self.waiting: ParsQueue = ParsQueue(policy, self._score_of, self._forgive, panel, self._admitted)
        # vLLM names its two victim rules after its two orders; the order itself is the queue's.
        self.policy = SchedulingPolicy.PRIORITY if policy.victim == "worst" else SchedulingPolicy.FCFS
        self._feed = None
        if not self._needs_score:
            return
        if scorer is not None:
            self._feed = ScoreFeed(scorer, log)
        elif settings.scorer is not None or policy.learns:
            self._feed = self._feed_of(settings.scorer or "online")

    def schedule(self, *args: Any, **options: Any) -> SchedulerOutput:
        if self._feed is not None:
            self._take_scores(self._feed)
        self.waiting.ranked.begin_step(self.clock())
        if self._gauges is not None:
            self._gauges.update(self.stats)
        return super().schedule(*args, **options)

    def stats(self) -> dict[str, float]:
        """Counters since the start and gauges of this moment.

        requests, scored (carried a score), unscored (carried none that is a finite number), scored_late (by the scorer,
        while known to the scheduler), order_failures (of an order of the user's own), promoted (of those that left);
        scorer_failures, scorer_given_up, and the scorer's own (`learner_...`); waiting, tracked (entries held for
        requests that are not finished). Where scores are judged: scores_trusted (1: in use), scores_tau and its
        standard error, trusted_times, distrusted_times, scores_clipped, claims_set_aside. For each shadow its tau, and
        whether it would be trusted.
        """
        feed, judge = self._feed, self.judge
        judged: dict[str, float] = {}
        if judge is not None:
            judged = {
                "scores_trusted": int(judge.trusted),
                "scores_tau": judge.tau.value,
                "scores_tau_error": judge.tau.error,
                "trusted_times": judge.trusted_times,
                "distrusted_times": judge.distrusted_times,
                "scores_clipped": judge.clipped,
                "claims_set_aside": judge.set_aside,
            }
        for shadow in self.shadows:
            name = _name(shadow.name)
            judged |= {
                f"shadow_tau_{name}": shadow.tau.value,
                f"shadow_trusted_{name}": int(shadow.judge.trusted),
            }
        return {
            **self._counts,
            **judged,
            **(feed.facts() if feed else {}),
            "scorer_failures": feed.failures if feed else 0,
            "scorer_given_up": int(feed.given_up) if feed else 0,
            "waiting": len(self.waiting),
            "tracked": len(self.waiting.entries),
        }

    def shutdown(self) -> None:
        log.info("parsim: %s", self.stats())
        if self._feed is not None:
            self._feed.close()
        self._close_shadows()
        if self._log is not None:
            self._log.close()
        super().shutdown()

    def _feed_of(self, scorer: str) -> ScoreFeed:
        """A scorer by its name, shielded."""
        options = {"learner_state": self._settings.learner_state} if scorer == "online" else {}
        return ScoreFeed(load_scorer(scorer, self._model, **options), log)

    def _admitted(self, request: Request) -> None:
        if self._log is not None:
            self._log.admitted(request)

    def update_from_output(self, *args: Any, **options: Any) -> Any:
        outputs = super().update_from_output(*args, **options)
        if self._log is not None:
            self._log.stepped()
        return outputs

    def _close_shadows(self) -> None:
        for shadow in self.shadows:
            shadow.feed.close()

    def _free_request(self, request: Request, *args: Any, **options: Any) -> Any:
        entry = self.waiting.entries.get(request.request_id)
        if entry is not None:
            self._counts["promoted"] += entry.promoted
            tokens, stopped = ending_of(request)
            scores = self._scores_of(entry) if self._log is not None else {}
            self.waiting.ranked.finished(entry, tokens, stopped)
            if self._feed is not None:
                self._feed.finished(request.request_id, tokens, stopped)
            if self._log is not None:
                self._log.finished(request, scores)
        self.waiting.forget(request.request_id)
        return super()._free_request(request, *args, **options)

    def _scores_of(self, entry: Entry) -> dict[str, float | None]:
        """What everybody said of a request, by name; the learner's scores are `learned`, for `online` is a policy."""
        settings, policy = self._settings, self._settings.resolved_policy()
        used = settings.scorer or ("online" if policy.learns else policy.predictor or "given")
        said = {used: entry.score} if self._needs_score else {}
        said |= {one.name: one.score(entry.request_id) for one in self.shadows}
        return {"learned" if name == "online" else _name(name): score for name, score in said.items()}

    def _score_of(self, request: Request) -> tuple[float | None, bool, str]:
        """The score that the request carries; one that carries none is put to the scorer, and may still get one. And
        the client that gave it."""
        self._counts["requests"] += 1
        features: Features | None = None
        if self.shadows:
            features = features_of(request, self.max_model_len)
            for shadow in self.shadows:
                shadow.arrived(request.request_id, features)
        if self._prompt_length_is_score:
            return float(request.num_prompt_tokens), False, ""
        score = score_of(request, self._settings)
        awaits_score = False
        if self._needs_score:
            self._counts["unscored" if score is None else "scored"] += 1
            if score is None and self._feed is not None:
                features = features or features_of(request, self.max_model_len)
                awaits_score = self._feed.submit(request.request_id, features)
        return score, awaits_score, "" if score is None else app_of(request)

    def _forgive(self, error: Exception) -> None:
        """An order of the user's own failed on a request, which now goes last; the first time is logged."""
        if not self._counts["order_failures"]:
            log.warning("parsim: %s; it goes last, and serving goes on (said once)", error)
        self._counts["order_failures"] += 1

    def _take_scores(self, feed: ScoreFeed) -> None:
        for request_id, score in feed.poll().items():
            entry = self.waiting.entries.get(request_id)
            if (
                entry is not None and entry.score is None
            ):  # only the first answer, and only where one is missing
                self._counts["scored_late"] += 1
                self.waiting.ranked.rescore(entry, score)


class AsyncParsScheduler(ParsScheduler, AsyncScheduler):
    """`ParsScheduler` over vLLM's `AsyncScheduler`: a batch is formed while the previous one runs."""


def _name(scorer: str) -> str:
    """A scorer's name as part of a metric's or a column's."""
    return "".join(letter if letter.isalnum() else "_" for letter in scorer)
