"""Routers by name."""

from __future__ import annotations

from collections.abc import Callable

from parsim.errors import UserError, nearest
from parsim.router.router import Router
from parsim.router.simple import LeastRequests, PowerOfTwo, Random, RoundRobin
from parsim.router.vllm_dp import VllmDp, VllmDpOld

ROUTERS: dict[str, Callable[[int], Router]] = {
    "vllm-dp": lambda seed: VllmDp(),
    "vllm-dp-0.19": lambda seed: VllmDpOld(),
    "round-robin": lambda seed: RoundRobin(),
    "random": lambda seed: Random(seed),
    "least-requests": lambda seed: LeastRequests(),
    "power-of-two": lambda seed: PowerOfTwo(seed),
}
"""What makes each router from a seed, which those that draw use."""


def router_of(name: str, seed: int = 0) -> Router:
    """A fresh router.

    Raises:
        UserError: no such router (the nearest name is given).
    """
    if name not in ROUTERS:
        raise UserError(
            f"router {name!r}: not known{nearest(name, ROUTERS)} (choose from {', '.join(ROUTERS)})"
        )
    return ROUTERS[name](seed)
