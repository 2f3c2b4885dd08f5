"""What a router sees and decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class View:
    """One engine as a router sees it, which may be a while ago.

    Attributes:
        waiting, running: requests in its queue and in its batch, at `as_of_s`.
        kv_usage: share of its KV cache in use, at `as_of_s`.
        in_flight: requests that this router sent there and that have not ended; exact at any time.
        as_of_s: when the engine said so, in seconds.
    """

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    in_flight: int = 0
    as_of_s: float = 0.0


class Routed(Protocol):
    """What a router may go by."""

    @property
    def request_id(self) -> str:
        """Unique."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""


class Router(Protocol):
    """Chooses an engine for each request.

    Attributes:
        publish_s: how old a view may be at most, in seconds; 0: it is always of now.
    """

    publish_s: float

    def choose(self, request: Routed, views: Sequence[View], now_s: float) -> int:
        """The number of the engine that serves `request`, which arrives at `now_s`."""
