"""Parity: vLLM's own scheduler and KV cache manager, under a virtual clock, against the simulated engine."""
