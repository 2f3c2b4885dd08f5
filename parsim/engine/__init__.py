"""One continuous-batching engine: settings, KV cache, batch formation, step time, and the SimPy process."""

from parsim.engine.config import EngineConfig
from parsim.engine.presets.load import load_engine, preset_names
from parsim.engine.presets.source import PresetSource
from parsim.engine.step_time import StepTime

__all__ = ["EngineConfig", "PresetSource", "StepTime", "load_engine", "preset_names"]
