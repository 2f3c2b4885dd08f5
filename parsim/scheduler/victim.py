"""Who is preempted when KV blocks run out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

VictimRule = Literal["last", "worst"]
R = TypeVar("R")


def worst(running: Iterable[R], key: Callable[[R], Any]) -> R:
    """The running request that the order would serve last (vLLM's `priority` policy); promoted ones go last.

    `last`, vLLM's `fcfs` policy, needs no function: it is the tail of the running list.

    Raises:
        ValueError: nothing is running.
    """
    return max(running, key=key)
