"""Whether this vLLM is one that the adapter was tested with, and has what it relies on."""

from __future__ import annotations

import inspect
import logging
from typing import Any

TESTED_VERSIONS = ("0.32.0",)
"""Versions of vLLM whose scheduler the parity check found equal to the simulated one."""

METHODS = ("schedule", "add_request", "finish_requests", "shutdown", "_free_request", "_preempt_request")
ATTRIBUTES = ("requests", "running", "waiting", "policy")
REQUEST_ATTRIBUTES = ("request_id", "arrival_time", "priority", "sampling_params", "prompt_token_ids")


def installed_version() -> str:
    """The version of the vLLM that is installed, without a local part such as `+cpu`."""
    from vllm.version import __version__

    return str(__version__).partition("+")[0]


def check_version(log: logging.Logger) -> bool:
    """Warn, in one line, about a version that was not tested; returns whether it was."""
    version = installed_version()
    if version in TESTED_VERSIONS:
        return True
    log.warning(
        "parsim: vLLM %s was not tested with this scheduler (tested: %s), and vLLM's scheduler interface is "
        "not public: run `parsim validate parity` before you trust it.",
        version,
        ", ".join(TESTED_VERSIONS),
    )
    return False


def check_interface(scheduler: Any) -> None:
    """Fail now, not under traffic, where vLLM lacks what the adapter relies on.

    Raises:
        RuntimeError: names what is missing.
    """
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import Request

    missing = [f"Scheduler.{name}()" for name in METHODS if not callable(getattr(Scheduler, name, None))]
    missing += [f"Scheduler.{name}" for name in ATTRIBUTES if not hasattr(scheduler, name)]
    source = inspect.getsource(Request.__init__)
    missing += [f"Request.{name}" for name in REQUEST_ATTRIBUTES if f"self.{name}" not in source]
    if missing:
        raise RuntimeError(
            f"parsim: vLLM {installed_version()} has no {', '.join(missing)}; the scheduler was tested with "
            f"{', '.join(TESTED_VERSIONS)}"
        )
