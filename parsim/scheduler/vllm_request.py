"""What vLLM's request says: before its first token, of its score, and of how it ended."""

from __future__ import annotations

from typing import Any

from vllm.v1.request import Request, RequestStatus

from parsim.scheduler.features import Features
from parsim.scheduler.scoring import finite
from parsim.scheduler.settings import APP_KEY, SCORE_KEY, SchedulerSettings

STOPPED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_REPETITION)


def features_of(request: Request, max_model_len: int) -> Features:
    """What a scorer is told. A `max_tokens` that the context alone sets is no limit of the client's, and with
    `ignore_eos` it is no limit but the length itself."""
    parameters = request.sampling_params
    limit = request.max_tokens
    forced = parameters is not None and parameters.ignore_eos
    if forced or request.num_prompt_tokens + limit >= max_model_len:
        limit = None
    return Features(
        prompt_token_ids=request.prompt_token_ids or (),
        prompt_tokens=request.num_prompt_tokens,
        max_tokens=limit,
        app=app_of(request),
        structured=parameters is not None and parameters.structured_outputs is not None,
    )


def extra_of(request: Request) -> dict[str, Any]:
    """What the client sent in `vllm_xargs`, or `SamplingParams.extra_args`."""
    return getattr(request.sampling_params, "extra_args", None) or {}


def app_of(request: Request) -> str:
    """The name of the application or client, empty where there is none."""
    app = extra_of(request).get(APP_KEY)
    return "" if app is None else str(app)[:200]


def score_of(request: Request, settings: SchedulerSettings) -> float | None:
    """The score that the request carries where its clients' word is taken; None for none."""
    if settings.score_source == "scorer" or settings.resolved_policy().learns:
        return None
    if settings.score_source == "priority":
        return finite(request.priority) if request.priority or settings.priority_zero else None
    return finite(extra_of(request).get(SCORE_KEY))


def ending_of(request: Request) -> tuple[int, bool | None]:
    """Its output tokens, and whether it stopped by itself (False: cut, None: aborted or failed).

    A length that `ignore_eos` forces stands for the natural one. A request with stop strings that is aborted after its
    first token has met one: vLLM looks for them outside the engine, and aborts what has one.
    """
    tokens, parameters = request.num_output_tokens, request.sampling_params
    if request.status in STOPPED:
        return tokens, True
    if request.status == RequestStatus.FINISHED_LENGTH_CAPPED:
        return tokens, parameters is not None and parameters.ignore_eos
    if (
        request.status == RequestStatus.FINISHED_ABORTED
        and parameters is not None
        and parameters.stop
        and tokens
    ):
        return tokens, True
    return tokens, None
