"""Which of several engines serves a request. The same objects run in the simulator and beside real engines."""

from parsim.router.named import ROUTERS, router_of
from parsim.router.router import Router, View

__all__ = ["ROUTERS", "Router", "View", "router_of"]
