"""What happened: recorded and drawn workloads.

>>> from parsim.traces import read_trace
>>> trace = read_trace("AzureLLMInferenceTrace_conv.csv")  # doctest: +SKIP

Names are imported when they are first used, so that `import traces` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsim.errors import UserError
    from parsim.traces.corpus import Corpus
    from parsim.traces.draw.arrivals import Arrivals, parse_arrivals
    from parsim.traces.draw.joining import join
    from parsim.traces.draw.lengths import Lognormal, Resampled
    from parsim.traces.draw.redrawing import redraw
    from parsim.traces.draw.synthesis import synthesize
    from parsim.traces.readers import read_corpus, read_trace
    from parsim.traces.trace import Trace, bundled_trace
    from parsim.traces.write import write_trace

_HOME = {
    "Arrivals": "parsim.traces.draw.arrivals",
    "Corpus": "parsim.traces.corpus",
    "Lognormal": "parsim.traces.draw.lengths",
    "Resampled": "parsim.traces.draw.lengths",
    "Trace": "parsim.traces.trace",
    "UserError": "parsim.errors",
    "bundled_trace": "parsim.traces.trace",
    "join": "parsim.traces.draw.joining",
    "parse_arrivals": "parsim.traces.draw.arrivals",
    "read_corpus": "parsim.traces.readers",
    "read_trace": "parsim.traces.readers",
    "redraw": "parsim.traces.draw.redrawing",
    "synthesize": "parsim.traces.draw.synthesis",
    "write_trace": "parsim.traces.write",
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
