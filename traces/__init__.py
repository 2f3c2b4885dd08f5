"""What happened: recorded and drawn workloads.

>>> from traces import read_trace
>>> trace = read_trace("AzureLLMInferenceTrace_conv.csv")  # doctest: +SKIP

Names are imported when they are first used, so that `import traces` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traces.arrivals import Arrivals, parse_arrivals
    from traces.corpus import Corpus
    from traces.errors import UserError
    from traces.joining import join
    from traces.lengths import Lognormal, Resampled
    from traces.readers import read_corpus, read_trace
    from traces.redrawing import redraw
    from traces.synthesis import synthesize
    from traces.trace import Trace, bundled_trace
    from traces.write import write_trace

_HOME = {
    "Arrivals": "traces.arrivals",
    "Corpus": "traces.corpus",
    "Lognormal": "traces.lengths",
    "Resampled": "traces.lengths",
    "Trace": "traces.trace",
    "UserError": "traces.errors",
    "bundled_trace": "traces.trace",
    "join": "traces.joining",
    "parse_arrivals": "traces.arrivals",
    "read_corpus": "traces.readers",
    "read_trace": "traces.readers",
    "redraw": "traces.redrawing",
    "synthesize": "traces.synthesis",
    "write_trace": "traces.write",
}

__all__ = [
    "Arrivals",
    "Corpus",
    "Lognormal",
    "Resampled",
    "Trace",
    "UserError",
    "bundled_trace",
    "join",
    "parse_arrivals",
    "read_corpus",
    "read_trace",
    "redraw",
    "synthesize",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
