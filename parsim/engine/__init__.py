"""One continuous-batching engine: settings, KV cache, batch formation, step time, and the SimPy process.

The rules of vLLM's scheduler that it follows are in docs/vllm-rules.md; the code names them by number.
"""

from parsim.engine.config import EngineConfig
from parsim.engine.presets.load import load_engine, preset_names
from parsim.engine.presets.source import PresetSource
from parsim.engine.step_time import StepTime

__all__ = ["EngineConfig", "PresetSource", "StepTime", "load_engine", "preset_names"]
