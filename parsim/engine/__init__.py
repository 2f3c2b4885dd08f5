"""One continuous-batching engine: settings, KV cache, batch formation, step time, and the SimPy process."""

from parsim.engine.config import EngineConfig
from parsim.engine.step_time import StepTime

__all__ = ["EngineConfig", "StepTime"]
