"""Many runs: a sweep file, its grid of points, their execution, and the tables that a report is written from.

The package can be called: `parsim.sweep(trace, policies=[...])` runs a sweep (`parsim.api.sweep`).
"""

import sys
from types import ModuleType
from typing import Any


class _Sweep(ModuleType):
    """The package itself, callable: `parsim.sweep` is the name of the room and of what is done in it."""

    def __call__(self, *args: Any, **fields: Any) -> Any:
        from parsim.api import sweep

        return sweep(*args, **fields)


sys.modules[__name__].__class__ = _Sweep
