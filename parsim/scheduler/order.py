"""The order of waiting requests: one sort key a request, smallest first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from parsim.errors import UserError, nearest
from parsim.scheduler import own_order
from parsim.scheduler.own_order import KeyFunction
from parsim.scheduler.request import WaitingRequest

Key = tuple[Any, float, str]


@dataclass(frozen=True)
class Order:
    """How waiting requests are ordered.

    Attributes:
        name: as in `Policy.order`.
        key: sort key of a request at a time (seconds), smallest first; a strict total order. With `by_length` it is
            given the expected response tokens besides.
        in_turn: the key is the place in the order of first enqueueing: needs no heap, no score and no guard.
        varies: keys change while a request waits; they are then sorted anew once a step, O(waiting).
        clairvoyant: the key needs the true response length.
        by_length: the key needs the expected response length in tokens (`parsim.scheduler.expected`).
    """

    name: str
    key: Callable[..., Key]
    in_turn: bool = False
    varies: bool = False
    clairvoyant: bool = False
    by_length: bool = False


def turn_key(request: WaitingRequest, now_s: float) -> Key:
    """The place in the order of first enqueueing: a preempted request comes back to it."""
    return (request.seq, request.arrival_s, request.request_id)


def score_key(request: WaitingRequest, now_s: float) -> Key:
    """Ascending rank (predicted length), then arrival, then id: shortest predicted job first."""
    return (request.rank, request.arrival_s, request.request_id)


def hrrn_key(request: WaitingRequest, now_s: float, tokens: float) -> Key:
    """Highest response ratio next: (wait + expected length) / expected length, descending; `tokens` at least 1. The
    order is the same whatever time a token takes. Source: Brinch Hansen, "Operating System Principles", 1973.
    """
    return (-(now_s - request.arrival_s) / tokens, request.arrival_s, request.request_id)


def aged(tokens_per_s: float) -> Order:
    """Ascending expected length less `tokens_per_s` for each second of waiting (ageing: Silberschatz and Galvin,
    "Operating System Concepts"). All age alike, so that the order of two requests never changes: the key is the length
    plus what the arrival is worth. 0 is shortest first, infinity first come first served."""

    def key(request: WaitingRequest, now_s: float, tokens: float) -> Key:
        return (tokens + tokens_per_s * request.arrival_s, request.arrival_s, request.request_id)

    return Order("score", key, by_length=True)


ORDERS: dict[str, Order] = {
    order.name: order
    for order in (
        Order("fcfs", turn_key, in_turn=True),
        Order("score", score_key),
        Order("hrrn", hrrn_key, varies=True, by_length=True),
    )
}
"""The orders that have a name."""


@lru_cache(maxsize=256)
def order_of(order: str | KeyFunction) -> Order:
    """The order of a name, of a function, or of a function's place: `module:function` or `file.py:function`.

    Raises:
        UserError: no order of that name (the nearest is given), no such module, file or function, or one that
            takes neither a request nor a request and a time.
    """
    if isinstance(order, str) and order in ORDERS:
        return ORDERS[order]
    if not isinstance(order, str):
        return _own(own_order.reference(order), order)
    if ":" in order:
        return _own(order, own_order.load(order))
    raise UserError(
        f"order {order!r}: no such order{nearest(order, ORDERS)} (choose from {', '.join(ORDERS)}, or name a "
        "function of your own as module:function)"
    )


def _own(name: str, function: KeyFunction) -> Order:
    value, varies, clairvoyant = own_order.key_value(name, function)

    def key(request: WaitingRequest, now_s: float) -> Key:
        return (value(request, now_s), request.arrival_s, request.request_id)

    return Order(name, key, varies=varies, clairvoyant=clairvoyant)
