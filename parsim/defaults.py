"""What is taken where nothing is said."""

from __future__ import annotations

DEFAULT_ENGINE = "llama-3.1-8b-a100-80g"
"""The engine preset: an 8B model on the card that most published figures are of."""

DEFAULT_STARVATION_THRESHOLD_S = 120.0
"""PARS promotes a request that has waited more than two minutes (arXiv 2510.03243)."""
